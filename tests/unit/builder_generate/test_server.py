"""vLLM's process, with a stand-in program in its place: started, awaited, ended, and what is said where that fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from enginewright_builder.errors import TransientError, UserError
from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.packages import PACKAGES_VARIABLE
from enginewright_builder.generate.server import LINES, VllmServer, first_error
from enginewright_builder.triton import process

# Ready at the second look; a child of its own, as vLLM's engine is.
ANSWERS = """
import subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
looks = 0
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        global looks
        looks += self.path == "/health"
        self.send_response(503 if self.path == "/health" and looks < 2 else 200)
        self.end_headers()
        self.wfile.write({"/version": b'{"version": "0.0.1"}', "/metrics": b"up 1"}.get(self.path, b""))
port = next(int(word.partition("=")[2]) for word in sys.argv if word.startswith("--port="))
HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], int]:
    """Puts a program where vLLM's command line would be."""
    file = tmp_path / "packages" / "vllm" / "entrypoints" / "cli" / "main.py"
    file.parent.mkdir(parents=True)
    monkeypatch.setenv(PACKAGES_VARIABLE, str(tmp_path / "packages"))
    return file.write_text


async def test_it_is_ready_says_its_version_and_leaves_no_process(program: Callable[[str], int],
                                                                  tmp_path: Path) -> None:
    program(ANSWERS)
    async with VllmServer(tmp_path, ServerArguments()) as server:
        group = server.pid
        assert server.version == "0.0.1"
        assert server.start_seconds > 0
        assert await server.metrics() == "up 1"
        assert await server.memory_bytes() > 1 << 20
        assert len(process.living(group)) == 2
    assert process.living(group) == []
    assert not server.log_file.exists()
    await server.stop()  # once more


async def test_a_server_without_metrics_may_be_asked_again(program: Callable[[str], int], tmp_path: Path) -> None:
    program(ANSWERS.replace('self.send_response(', 'self.path == "/metrics" and sys.exit(); self.send_response('))
    async with VllmServer(tmp_path, ServerArguments()) as server:
        with pytest.raises(TransientError, match="does not answer /metrics: ") as caught:
            await server.metrics()
    assert caught.value.reason == "ServerUnavailable"


def test_a_server_keeps_connections_for_longer_than_clients_do(tmp_path: Path) -> None:
    variables = VllmServer(tmp_path, ServerArguments()).variables()
    assert float(variables["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"]) > (httpx.Limits().keepalive_expiry or 0)


@pytest.mark.parametrize(("text", "kind", "reason", "said"), [
    ("print('no such kernel'); raise SystemExit(3)", UserError, "ServerLoadFailed",
     "vLLM ended with status 3. Last lines of its log:\nno such kernel"),
    ("raise ValueError('no such type')", UserError, "ServerLoadFailed",
     "vLLM ended with status 1: ValueError: no such type. Last lines of its log:\nTraceback"),
    ("raise SystemExit('OSError: [Errno 98] Address already in use')", TransientError, "PortTaken",
     "a port was taken meanwhile")])
async def test_a_server_that_ends_says_why(text: str, kind: type[UserError | TransientError], reason: str, said: str,
                                           program: Callable[[str], int], tmp_path: Path) -> None:
    program(text)
    with pytest.raises(kind) as caught:
        async with VllmServer(tmp_path, ServerArguments(max_num_seqs=4)):
            pass
    assert caught.value.reason == reason
    assert said in caught.value.message


async def test_a_server_that_is_never_ready_is_ended(program: Callable[[str], int], tmp_path: Path) -> None:
    program("import time; time.sleep(600)")
    server = VllmServer(tmp_path, ServerArguments(max_num_seqs=4), ready_seconds=0.5)
    with pytest.raises(UserError, match="vLLM was not ready within") as caught:
        await server.__aenter__()
    assert caught.value.value == "--dtype=auto --tensor-parallel-size=1 --max-num-seqs=4"
    assert process.living(server.pid) == []


async def test_a_server_whose_engine_has_failed_is_not_waited_for(
        program: Callable[[str], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(f"import time; print({LOG!r}, flush=True); time.sleep(600)")
    monkeypatch.setattr("enginewright_builder.generate.server.FAILED_SECONDS", 0.0)
    server = VllmServer(tmp_path, ServerArguments(), ready_seconds=600)
    with pytest.raises(UserError, match="vLLM's engine failed, and vLLM did not end: NotImplementedError: no kernel"):
        await server.__aenter__()
    assert process.living(server.pid) == []


LOG = """(APIServer pid=5) WARNING 11-26 14:22:01 [system_utils.py:255] It may end in `OSError: [Errno 24]`
(Worker pid=7) WARNING 11-26 14:28:55 [utils.py:597] Failed to create a kernel. Exception: could not create it
(EngineCore pid=6) ERROR 11-26 14:29:00 [core.py:999] EngineCore failed to start.
(EngineCore pid=6) ERROR 11-26 14:29:00 [core.py:999] Traceback (most recent call last):
(EngineCore pid=6) ERROR 11-26 14:29:00 [core.py:999] NotImplementedError: no kernel for this type
(APIServer pid=5) RuntimeError: Engine core initialization failed. See root cause above.
"""


def test_the_first_error_of_a_log_is_no_warning_and_no_consequence() -> None:
    assert first_error(LOG) == "NotImplementedError: no kernel for this type"
    assert first_error("".join(LOG.splitlines(keepends=True)[:3])) == ""


# As vLLM 0.32 says it of a type that it has no kernel for. It leaves a space at the end of the first line.
SAID = """ValueError: Failed to find a kernel that can implement the WNA16 linear layer. Reasons:
 Dynamic4bitLinearKernel cannot implement due to: Unsupported quant type float4_e2m1f
 ZentorchWNA16LinearKernel cannot implement due to: ZentorchWNA16 requires an AMD Zen CPU.
MacheteLinearKernel requires capability 90, current compute  capability is 80
"""
ALL = ("ValueError: Failed to find a kernel that can implement the WNA16 linear layer. Reasons: "
       "Dynamic4bitLinearKernel cannot implement due to: Unsupported quant type float4_e2m1f; "
       "ZentorchWNA16LinearKernel cannot implement due to: ZentorchWNA16 requires an AMD Zen CPU.; "
       "MacheteLinearKernel requires capability 90, current compute capability is 80")
LOGGED, PLAIN = "(EngineCore pid=6) ERROR 11-26 14:29:00 [core.py:999] ", "(EngineCore pid=6) "


def marked(text: str, mark: str) -> str:
    return "".join(f"{mark}{line}" for line in text.splitlines(keepends=True))


@pytest.mark.parametrize(("mark", "after"), [
    (LOGGED, "(EngineCore pid=6) Process EngineCore:\n(EngineCore pid=6) Traceback (most recent call last):\n"),
    (LOGGED, "(EngineCore pid=6) ERROR 11-26 14:29:00 [core.py:1000] Traceback (most recent call last):\n"),
    (PLAIN, "(EngineCore pid=6) Process EngineCore:\n"),
    (PLAIN, "(EngineCore pid=6) ERROR 11-26 14:29:01 [core.py:1] more\n"),
    (PLAIN, "[rank0]: gone\n"), ("", "(APIServer pid=5) Traceback\n"), ("", "Traceback (most recent call last):\n"),
    ("", "\nwords of another kind\n"), ("", "")])
def test_all_reasons_that_an_error_lists_are_told(mark: str, after: str) -> None:
    said = marked(SAID.replace("Reasons:", "Reasons: "), mark)
    assert first_error(LOG.splitlines(keepends=True)[0] + said + after) == ALL


def test_reasons_without_end_are_cut() -> None:
    log = "ValueError: none. Reasons: \n" + 1000 * " AKernel cannot implement due to: a type\n"
    assert len(first_error(log)) == LINES
