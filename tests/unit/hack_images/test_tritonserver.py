"""The wrapper that lets a manifest say plain ``tritonserver``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from images.recipe import ROOT

WRAPPER = ROOT / "builders" / "images" / "tritonserver"
PACKAGES = "/usr/local/lib/python3.11/dist-packages"
# Says what it was started with.
SERVER = f"""#!{sys.executable}
import json, os, sys
print(json.dumps({{"pid": os.getpid(), "arguments": sys.argv[1:], "libraries": os.environ["LD_LIBRARY_PATH"]}}))
"""


@pytest.fixture
def wrapper(tmp_path: Path) -> Path:
    """The wrapper over a tree that looks like the installed wheel."""
    triton = tmp_path / "packages" / "pytriton" / "tritonserver"
    (triton / "bin").mkdir(parents=True)
    (triton / "bin" / "tritonserver").write_text(SERVER)
    (triton / "bin" / "tritonserver").chmod(0o755)
    (triton / "backends" / "python").mkdir(parents=True)
    (triton / "backends" / "python" / "stub").write_text("stub")
    (tmp_path / "tmp").mkdir()
    script = tmp_path / "tritonserver"
    script.write_text(WRAPPER.read_text().replace(PACKAGES, str(tmp_path / "packages")))
    script.chmod(0o755)
    return script


def start(wrapper: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    given = {"PATH": os.environ["PATH"], "TMPDIR": str(wrapper.parent / "tmp"), **environment}
    return subprocess.Popen([wrapper, *arguments], env=given, stdout=subprocess.PIPE, text=True)


def run(wrapper: Path, *arguments: str, **environment: str) -> dict[str, object]:
    process = start(wrapper, *arguments, **environment)
    output, _ = process.communicate()
    assert process.returncode == 0
    said: dict[str, object] = json.loads(output)
    assert said["pid"] == process.pid, "the server must take the wrapper's place, so that signals reach it"
    return said


def test_the_server_gets_the_arguments_and_a_writable_copy_of_the_backends(wrapper: Path) -> None:
    backends = wrapper.parent / "tmp" / "enginewright-backends"
    said = run(wrapper, "--model-repository=/a b")
    assert said["arguments"] == [f"--backend-directory={backends}", "--model-repository=/a b"]
    assert (backends / "python" / "stub").read_text() == "stub"
    assert os.access(backends, os.W_OK)


@pytest.mark.parametrize("given", [("--backend-directory=/own",), ("--backend-directory", "/own")])
def test_a_given_backend_directory_is_kept(wrapper: Path, given: tuple[str, ...]) -> None:
    assert run(wrapper, "--log-info=1", *given)["arguments"] == ["--log-info=1", *given]


@pytest.mark.parametrize(("given", "added"), [
    (("--cache-config=local,size=9",), True), (("--cache-config", "local,size=9"), True),
    (("--cache-config=local,size=9", "--cache-directory=/own"), False),
])
def test_a_server_that_caches_is_told_where_the_wheel_has_caches(wrapper: Path, given: tuple[str, ...],
                                                                 added: bool) -> None:
    caches = f"--cache-directory={wrapper.parent}/packages/pytriton/tritonserver/caches"
    own = ("--backend-directory=/own", *given)
    assert run(wrapper, *own)["arguments"] == [*([caches] if added else []), *own]


def test_the_wheels_libraries_come_before_given_ones(wrapper: Path) -> None:
    own = f"{wrapper.parent}/packages/nvidia_pytriton.libs"
    assert run(wrapper)["libraries"] == own
    assert run(wrapper, LD_LIBRARY_PATH="/more")["libraries"] == f"{own}:/more"


def test_servers_that_start_at_once_share_one_complete_copy(wrapper: Path) -> None:
    processes = [start(wrapper) for _ in range(8)]
    for process in processes:
        process.communicate()
    assert {process.returncode for process in processes} == {0}
    assert [path.name for path in (wrapper.parent / "tmp").iterdir()] == ["enginewright-backends"]
    assert [path.name for path in (wrapper.parent / "tmp" / "enginewright-backends").iterdir()] == ["python"]
