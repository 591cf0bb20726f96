"""The program that runs vLLM in the server's container, and who speaks to it: both real, with a stand-in for vLLM."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from enginewright_builder import own_device
from enginewright_builder.cli import main
from enginewright_builder.contract import DeviceRequest, dumps, load
from enginewright_builder.errors import TransientError, UserError
from enginewright_builder.evidence.content import hardware
from enginewright_builder.generate.ability import ability
from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.hand_over import DOCUMENT
from enginewright_builder.generate.supervised import Supervised
from enginewright_builder.machine import Machine, look
from enginewright_builder.pod.device import Device, Driver
from enginewright_builder.supervise import (
    CHECKPOINTS,
    DRAFTS,
    ENDED_FROM_OUTSIDE,
    KILLED,
    LOG,
    NOT_STARTED,
    STATE,
    WANTED,
    State,
    Wanted,
    write,
)
from enginewright_builder.triton import process
from enginewright_builder.triton.ports import free_ports
from support.supervising import PATIENCE_SECONDS, start, supervised

pytestmark = pytest.mark.timeout(600)

# With a child in a session of its own, as vLLM's engine might be, that has no parent soon.
ANSWERS = """
import json, os, subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write({"/version": b'{"version": "0.0.1"}',
                          "/metrics": json.dumps([sys.argv[1:], dict(os.environ), os.getpid()]).encode(),
                          }.get(self.path, b""))
print("it listens", flush=True)
words = dict(word.partition("=")[::2] for word in sys.argv)
HTTPServer((words["--host"], int(words["--port"])), Handler).serve_forever()
"""
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + ANSWERS
Run = Callable[[str], Supervised]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """A supervisor with this program in vLLM's place."""
    running = []

    def begin(text: str) -> Supervised:
        (tmp_path / "fake.py").write_text(text)
        one = supervised(tmp_path, [sys.executable, "-S", str(tmp_path / "fake.py")], tmp_path / "model",
                         {"FROM_THE_CONTAINER": "1"})
        running.append(one)
        return one.__enter__()

    yield begin
    for one in running:
        one.__exit__(None, None, None)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def there(path: str) -> bool:
    return Path(path).exists()


async def served(place: Supervised, tmp_path: Path, arguments: ServerArguments) -> int:
    """Its process, which has ended."""
    async with place(tmp_path, arguments, ready_seconds=PATIENCE_SECONDS) as server:
        assert (server.version, server.http_url[:17]) == ("0.0.1", "http://127.0.0.1:")
        assert server.start_seconds > 0
        assert await server.memory_bytes() > 1 << 20
        words, environment, pid = json.loads(await server.metrics())
        assert words[0] == str(tmp_path / "model")
        assert words[1:-2] == server.words()
        assert words[-2:] == ["--host=127.0.0.1", f"--port={server.http_url.rpartition(':')[2]}"]
        wanted = {**arguments.environment(), "FROM_THE_CONTAINER": "1"}
        assert environment.items() >= wanted.items()
        assert server.last_words().startswith("Last lines of its log:\nit listens\n")
        assert len(process.descendants(place.state().pid)) == 2
        assert there(environment["HOME"])
    assert not there(environment["HOME"])
    assert not there(f"/proc/{pid}")  # not even as a zombie
    await server.stop()  # once more
    return int(pid)


async def test_it_serves_one_after_another_and_leaves_no_process(run: Run, tmp_path: Path) -> None:
    place = run(ANSWERS)
    pids = [await served(place, tmp_path, ServerArguments(max_num_seqs=number, threads=1)) for number in (2, 3)]
    assert len(set(pids)) == 2


async def test_a_checkpoint_beside_the_model_is_served_in_its_place(run: Run, tmp_path: Path) -> None:
    place, folder = run(ANSWERS), tmp_path / CHECKPOINTS / "awq"
    folder.mkdir(parents=True)
    (tmp_path / DOCUMENT).write_text("{}")
    async with place(folder, ServerArguments(), ready_seconds=PATIENCE_SECONDS) as server:
        assert json.loads(await server.metrics())[0][0] == str(folder)


@pytest.mark.parametrize("name", ["gone", "..", "../model", "/etc", "link", "awq/..", "file"])
async def test_no_name_of_a_checkpoint_leads_elsewhere(name: str, run: Run, tmp_path: Path) -> None:
    place, folder = run(ANSWERS), tmp_path / CHECKPOINTS
    (folder / "awq").mkdir(parents=True)
    (folder / "link").symlink_to("/etc")
    (folder / "file").write_text("")
    write(place.control / WANTED, dumps(Wanted(id="1", words=("a",), checkpoint=name, port=1)))
    until(lambda: place.state().status is not None)
    assert place.state().status == NOT_STARTED
    assert f"there is no checkpoint {name!r} beside the model" in (place.witness / LOG).read_text()


async def test_a_draft_beside_the_model_is_given_by_a_name_of_no_meaning(run: Run, tmp_path: Path) -> None:
    """vLLM takes a folder named so for a head of EAGLE."""
    place, folder = run(ANSWERS), tmp_path / DRAFTS / "eagle-3"
    folder.mkdir(parents=True)
    asked = ServerArguments(speculative_tokens=2, draft="eagle-3")
    async with place(tmp_path, asked, ready_seconds=PATIENCE_SECONDS, draft=folder) as server:
        words = json.loads(await server.metrics())[0]
        assert words[0] == str(tmp_path / "model")
        (given,) = (json.loads(one.partition("=")[2]) for one in words if one.startswith("--speculative-config="))
        assert Path(given["model"]).name == "draft"
        assert os.readlink(given["model"]) == str(folder)


@pytest.mark.parametrize("name", ["gone", "..", "/etc", "link", "file"])
async def test_no_name_of_a_draft_leads_elsewhere(name: str, run: Run, tmp_path: Path) -> None:
    place, folder = run(ANSWERS), tmp_path / DRAFTS
    folder.mkdir(parents=True)
    (folder / "link").symlink_to("/etc")
    (folder / "file").write_text("")
    write(place.control / WANTED, dumps(Wanted(id="1", words=("a",), draft=name, port=1)))
    until(lambda: place.state().status is not None)
    assert place.state().status == NOT_STARTED
    assert f"there is no draft {name!r} beside the model" in (place.witness / LOG).read_text()


async def test_a_newer_one_ends_the_one_before_also_where_that_does_not_want_to(run: Run, tmp_path: Path) -> None:
    place = run(STUBBORN)
    async with place(tmp_path, ServerArguments(), ready_seconds=PATIENCE_SECONDS) as first:
        old = process.descendants(place.state().pid)
        async with place(tmp_path, ServerArguments(), ready_seconds=PATIENCE_SECONDS) as second:
            assert first.http_url != second.http_url
            assert not any(there(f"/proc/{pid}") for pid in old)


@pytest.mark.parametrize(("text", "kind", "reason", "said"), [
    ("print('no such kernel'); raise SystemExit(3)", UserError, "ServerLoadFailed",
     "vLLM ended with status 3. Last lines of its log:\nno such kernel"),
    ("raise ValueError('no such type')", UserError, "ServerLoadFailed",
     "vLLM ended with status 1: ValueError: no such type. Last lines of its log:\nTraceback"),
    ("import os; os.kill(os.getpid(), 9)", UserError, "ServerLoadFailed", "vLLM ended with status 137"),
    ("raise SystemExit('OSError: [Errno 98] Address already in use')", TransientError, "PortTaken",
     "a port was taken meanwhile")])
async def test_a_server_that_ends_says_why(text: str, kind: type[UserError | TransientError], reason: str, said: str,
                                           run: Run, tmp_path: Path) -> None:
    place = run(text)
    with pytest.raises(kind) as caught:
        async with place(tmp_path, ServerArguments(), ready_seconds=PATIENCE_SECONDS):
            pass
    assert caught.value.reason == reason
    assert said in caught.value.message


async def test_a_server_that_is_never_ready_is_ended(run: Run, tmp_path: Path) -> None:
    place = run("import time; time.sleep(600)")
    await asyncio.to_thread(place.look)
    with pytest.raises(UserError, match="vLLM was not ready within"):
        async with place(tmp_path, ServerArguments(), ready_seconds=0.5):
            pass
    assert place.state().status == 0


async def test_a_command_that_is_not_there_is_said(tmp_path: Path) -> None:
    with (supervised(tmp_path, ["no-such-vllm", "serve"], tmp_path) as place,
          pytest.raises(UserError, match=r"status 127: FileNotFoundError: .*no-such-vllm")):
        async with place(tmp_path, ServerArguments(), ready_seconds=PATIENCE_SECONDS):
            pass


def test_it_says_what_its_container_sees(run: Run) -> None:
    seen, here = run(ANSWERS).look(), look()
    assert (seen.cores, seen.flags, seen.gpus, seen.driver) == (here.cores, here.flags, here.gpus, here.driver)
    can = ability(DeviceRequest(accelerator="cpu"), seen)
    assert (can.gpu, can.cores, can.flags) == (False, here.cores, frozenset(here.flags))
    assert can.memory_bytes > 0


def test_a_device_is_named_and_held_against_what_was_asked_for_by_what_its_container_sees() -> None:
    seen = Machine(cores=7, driver=Driver("580.1", "13.0"), runtimes=("12.9",),
                   gpus=(Device("NVIDIA H200", capability="9.0", memory_bytes=141 << 30),))
    asked, notes = DeviceRequest(accelerator="gpu", products=("NVIDIA-H200",)), list[str]()
    own_device.check(asked, notes.append, seen)
    assert notes == ["this build runs on NVIDIA H200, a whole GPU, 141.0 GiB; driver 580.1 for CUDA up to 13.0"]
    assert (hardware(asked, seen).device, hardware(asked, seen).cores) == ("NVIDIA H200", 7)
    can = ability(asked, seen)
    assert (can.gpu, can.capability, can.bf16) == (True, (9, 0), True)
    for other, reason in ((dataclasses.replace(seen, gpus=(Device("NVIDIA A10"),)), "DeviceMismatch"),
                          (dataclasses.replace(seen, driver=Driver("580.1", "11.8")), "DriverTooOld")):
        with pytest.raises(UserError) as caught:
            own_device.check(asked, notes.append, other)
        assert caught.value.reason == reason


def test_who_says_nothing_or_nonsense_of_its_device_is_named(tmp_path: Path) -> None:
    place = Supervised(tmp_path, tmp_path)
    with pytest.raises(TransientError, match="has not said within 0 s"):
        place.look(patience=0)
    (tmp_path / "machine.json").write_text('{"cores": "many"}')
    with pytest.raises(UserError, match=r"Machine\.cores: expected a whole number"):
        place.look()
    (tmp_path / STATE).write_text("[" * 100_000)
    assert place.state() == State()


def test_a_container_that_was_ended_starts_nothing_that_it_ran(tmp_path: Path) -> None:
    for name in ("control", "witness"):
        (tmp_path / name).mkdir()
    write(tmp_path / "control" / WANTED, dumps(Wanted(id="a", words=(), port=1)))
    write(tmp_path / "witness" / STATE, dumps(State(id="a", pid=1, memory_bytes=5)))
    (tmp_path / "witness" / LOG).write_text("half a line")
    with supervised(tmp_path, ["touch", str(tmp_path / "begun")], tmp_path) as place:
        place.look()
        until(lambda: place.state().status == KILLED)
        write(tmp_path / "control" / WANTED, dumps(Wanted(id="b")))
        until(lambda: place.state().id == "b")
    assert (tmp_path / "witness" / LOG).read_text() == f"half a line\n{ENDED_FROM_OUTSIDE}\n"
    assert not (tmp_path / "begun").exists()


def test_the_end_of_the_pod_ends_everything(tmp_path: Path) -> None:
    (tmp_path / "fake.py").write_text(ANSWERS)
    running = start(tmp_path, [sys.executable, "-S", str(tmp_path / "fake.py")], tmp_path)
    place, (port,) = Supervised(tmp_path / "control", tmp_path / "witness"), free_ports(1)
    write(tmp_path / "control" / WANTED, dumps(Wanted(id="a", words=(), port=port)))
    until(lambda: place.state().pid > 0 and len(process.descendants(place.state().pid)) == 2)
    pids = process.descendants(place.state().pid)
    running.send_signal(signal.SIGTERM)
    assert running.wait(timeout=PATIENCE_SECONDS) == 0
    assert not any(there(f"/proc/{pid}") for pid in pids)
    ended = load(State, (tmp_path / "witness" / STATE).read_text())
    assert (ended.status, ended.pid) == (128 + signal.SIGTERM, 0)
    assert not list((tmp_path / "witness").glob(".*"))


def test_control_needs_a_witness(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["prove", f"--hand-over={tmp_path}", f"--control={tmp_path}"])
    assert "--control needs --witness" in capsys.readouterr().err
