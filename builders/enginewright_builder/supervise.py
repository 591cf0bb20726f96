"""Runs vLLM in the server's container, for a prover in another one of the pod (docs/adr/0039-language-models.md)::

    python3 -I -S PROGRAM --control DIR --witness DIR --model DIR -- vllm serve

``PROGRAM`` is a folder that :func:`leave` fills. The prover writes into the control folder what is to run, and this
program, which only reads there, writes into the witness folder what it sees and what became of it. Each file is renamed
into its place, so that no reader gets half of it. One process of vLLM runs at a time: a newer document ends the one
before. Standard library only: the server's image is of the user's choice.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import dataclasses
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from enginewright_builder import contract, copied, machine, pod, system, triton
from enginewright_builder.contract import DRAFT_FOLDER, ContractError, dumps, load, with_draft
from enginewright_builder.copied import copy_modules
from enginewright_builder.machine import look
from enginewright_builder.pod import device, libraries
from enginewright_builder.triton import process

WANTED = "wanted.json"
# Beside the model's folder: other weights of it, and drafts, each in a folder of its own.
CHECKPOINTS, DRAFTS = "checkpoints", "drafts"
MACHINE, STATE, LOG = "machine.json", "state.json", "log"
# Of a log, its end: the first error lies above a traceback or two.
LOG_BYTES = 256 << 10
HOST = "127.0.0.1"
# What a server that is asked to end gets, its own limit (``--shutdown-timeout``) and some.
END_SECONDS = 10.0
LOOK_SECONDS, MEASURE_SECONDS = 0.2, 1.0
# As shells report SIGKILL, and a command that cannot be started.
KILLED, NOT_STARTED = 128 + signal.SIGKILL, 127
ENDED_FROM_OUTSIDE = "The server's container was ended and started again: most often it lacked memory."
_WAKING = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
# linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
_MAIN = "import sys\n\nfrom enginewright_builder.supervise import main\n\nsys.exit(main())\n"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """``words`` follow the model's folder; None where nothing is to run. ``port`` is of the loopback. ``checkpoint``
    names a folder in :data:`CHECKPOINTS` that is served in place of the model's, ``draft`` one in :data:`DRAFTS` whose
    place the words leave open."""

    id: str
    checkpoint: str = ""
    draft: str = ""
    words: tuple[str, ...] | None = None
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    port: int = 0


@dataclass(frozen=True, kw_only=True)
class State:
    """Of what was wanted last. ``status`` is that with which it ended, 128 and more for signals; None while it runs.
    ``memory_bytes`` is what its processes take, measured for the ``measured``-th time."""

    id: str = ""
    pid: int = 0
    status: int | None = None
    memory_bytes: int = 0
    measured: int = 0


def leave(folder: Path) -> None:
    """The program, as a folder that Python runs. Raises :class:`OSError`."""
    this = sys.modules[__name__]
    package = copy_modules(folder, (this, copied, machine, pod, device, libraries, system, triton, process))
    # Of the other packages it needs what their names alone hold.
    whole = Path(str(contract.__file__)).parent
    shutil.copytree(whole, package / whole.name, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    (folder / "__main__.py").write_text(_MAIN, encoding="utf-8")


def write(file: Path, text: str) -> None:
    """By a rename, so that no reader gets half of it."""
    part = file.with_name(f".{file.name}.next")
    part.write_text(text, encoding="utf-8")
    part.replace(file)


class Supervisor:
    """``command`` starts the server; the folder ``model`` and the wanted words follow it."""

    def __init__(self, command: Sequence[str], model: Path, control: Path, witness: Path) -> None:
        self.command, self.model, self.control, self.witness = tuple(command), model, control, witness
        self.state = State()
        self._home = Path()
        self._status: int | None = None
        self._measure_at = 0.0
        self._ending = False

    def run(self) -> None:
        """Until SIGTERM or SIGINT, which ends what runs."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _WAKING)
        # What a server leaves behind comes to this process, which ends and reaps it, also where it is not the first.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._go_on()
        write(self.witness / MACHINE, dumps(look()))
        while not self._ending:
            self._step()
            self._wait(LOOK_SECONDS)
        self._end()

    @property
    def _running(self) -> bool:
        return bool(self.state.id) and self.state.status is None

    def _step(self) -> None:
        if self._running and self._status is not None:
            self._close()
        wanted = self._wanted()
        if wanted and wanted.id != self.state.id:
            self._end()
            self._begin(wanted)
        if self._running and time.monotonic() >= self._measure_at:
            self._measure()

    def _go_on(self) -> None:
        """After a start of the container, perhaps not the first: what took all its memory would do so again."""
        with contextlib.suppress(OSError, ContractError):
            self.state = load(State, (self.witness / STATE).read_text(encoding="utf-8"))
        if self._running:
            write(self.witness / LOG, f"{process.log(self.witness / LOG)}\n{ENDED_FROM_OUTSIDE}\n")
            self._record(pid=0, status=KILLED)

    def _wanted(self) -> Wanted | None:
        try:
            return load(Wanted, (self.control / WANTED).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def _begin(self, wanted: Wanted) -> None:
        self.state, self._status, self._measure_at = State(id=wanted.id), None, 0.0
        if wanted.words is None:
            self._record(status=0)
            return
        self._home = Path(tempfile.mkdtemp(prefix="enginewright-vllm-"))
        folder = self._beside(CHECKPOINTS, wanted.checkpoint) if wanted.checkpoint else self.model
        draft = self._beside(DRAFTS, wanted.draft) if wanted.draft else None
        # vLLM takes some names of folders for other methods of speculation, and what the user calls it is no matter.
        link = self._home / DRAFT_FOLDER
        words = [*self.command, str(folder), *with_draft(wanted.words, str(link)), f"--host={HOST}",
                 f"--port={wanted.port}"]
        environment = {**os.environ, "HOME": str(self._home), **wanted.environment}
        log = str(self._home / LOG)
        try:
            if folder is None:
                raise FileNotFoundError(f"there is no checkpoint {wanted.checkpoint!r} beside the model")
            if wanted.draft:
                if draft is None:
                    raise FileNotFoundError(f"there is no draft {wanted.draft!r} beside the model")
                link.symlink_to(draft)
            pid = os.posix_spawnp(words[0], words, environment, setsid=True, setsigmask=(), file_actions=(
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2)))
        except OSError as error:
            Path(log).write_text(f"{type(error).__name__}: {error}\n", encoding="utf-8")
            self._status, pid = NOT_STARTED, 0
        self._record(pid=pid)

    def _beside(self, folder: str, name: str) -> Path | None:
        """None unless ``name`` is one of those that lie in ``folder`` beside the model: no name leads elsewhere."""
        with contextlib.suppress(OSError):
            for one in (self.model.parent / folder).iterdir():
                if one.name == name and one.is_dir() and not one.is_symlink():
                    return one
        return None

    def _measure(self) -> None:
        self._measure_at = time.monotonic() + MEASURE_SECONDS
        self._copy_log()
        self._record(memory_bytes=process.resident_bytes(self.state.pid), measured=self.state.measured + 1)

    def _end(self) -> None:
        """Politely at first."""
        if not self._running:
            return
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.state.pid, signal.SIGTERM)
        deadline = time.monotonic() + END_SECONDS
        while self._status is None and time.monotonic() < deadline:
            self._wait(LOOK_SECONDS)
        self._close()

    def _close(self) -> None:
        """None of its processes runs when its state says that it has ended: the next one needs their memory."""
        deadline = time.monotonic() + process.KILL_SECONDS
        while (left := process.descendants(os.getpid())[1:]) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._wait(process.POLL_SECONDS)
        self._copy_log()
        shutil.rmtree(self._home, ignore_errors=True)
        self._record(pid=0, status=KILLED if self._status is None else self._status, memory_bytes=0)

    def _copy_log(self) -> None:
        with contextlib.suppress(OSError), (self._home / LOG).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_BYTES))
            write(self.witness / LOG, log.read(LOG_BYTES).decode(errors="replace"))

    def _record(self, **changed: int) -> None:
        self.state = dataclasses.replace(self.state, **changed)  # type: ignore[arg-type]  # all but the name are numbers
        write(self.witness / STATE, dumps(self.state))

    def _wait(self, seconds: float) -> None:
        """For a signal at most so long, and reaps each child that has ended: the container's first process has to."""
        woken = signal.sigtimedwait(_WAKING, seconds)
        if woken and woken.si_signo != signal.SIGCHLD:
            self._ending = True
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self.state.pid:
                    code = os.waitstatus_to_exitcode(ended[1])
                    self._status = code if code >= 0 else 128 - code


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="supervise")
    for name in ("control", "witness", "model"):
        parser.add_argument(f"--{name}", required=True, type=Path, metavar="DIR")
    parser.add_argument("command", nargs="+", help="starts the server; the model's folder and its words follow")
    options = parser.parse_args(arguments)
    Supervisor(options.command, options.model, options.control, options.witness).run()
    return 0
