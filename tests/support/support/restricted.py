"""An image's root as the container of a restricted pod, without a node: a user of its own on a read-only root, no
capability, no network but loopback, and /tmp to write to."""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

UID = 65532
NAMESPACES = ("pid", "mount", "ipc", "uts", "network", "cgroup")
PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, kw_only=True)
class Container:
    """``name`` is its id, ``log`` has both streams of its first process."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]
    state: Path

    def run(self, *command: str, timeout: float = 600.0) -> str:
        """In the running container; returns what it prints. Raises ``AssertionError`` with both streams and the log."""
        done = subprocess.run(_runc(self.state, "exec", self.name, *command), capture_output=True, text=True,
                              check=False, timeout=timeout)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{self.log.read_text()[-4000:]}"
        return done.stdout

    def stop(self, timeout: float = 120.0) -> int:
        """SIGTERM; returns the status that it ends with."""
        subprocess.run(_runc(self.state, "kill", self.name, "TERM"), check=True, timeout=timeout)
        return self.process.wait(timeout)


@contextmanager
def container(root: Path, scratch: Path, command: Sequence[str], *, environment: Mapping[str, str],
              read: Mapping[str, Path]) -> Iterator[Container]:
    """``read`` maps paths in the container to folders here."""
    scratch.mkdir(parents=True, exist_ok=True)
    (scratch / "config.json").write_text(json.dumps(_config(root, command, environment, read)))
    name, log, state = f"enginewright-{uuid.uuid4().hex[:12]}", scratch / "log", scratch / "state"
    with log.open("wb") as stream:
        process = subprocess.Popen(_runc(state, "run", "--bundle", str(scratch), name), stdin=subprocess.DEVNULL,
                                   stdout=stream, stderr=stream)
    try:
        _until_running(name, state, process, log)
        yield Container(name=name, log=log, process=process, state=state)
    finally:
        subprocess.run(_runc(state, "delete", "--force", name), check=False, capture_output=True)
        process.wait(60)


def _until_running(name: str, state: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    """Before, nothing can be run in it. Raises ``AssertionError`` where it ends instead."""
    while json.loads(subprocess.run(_runc(state, "state", name), capture_output=True, text=True, check=False).stdout
                     or "{}").get("status") != "running":
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)


def _runc(state: Path, *words: str) -> list[str]:
    return ["runc", "--root", str(state), *words]


def _config(root: Path, command: Sequence[str], environment: Mapping[str, str],
            read: Mapping[str, Path]) -> dict[str, Any]:
    capabilities: dict[str, list[str]] = {
        name: [] for name in ("bounding", "effective", "permitted", "inheritable", "ambient")}
    return {
        "ociVersion": "1.0.2",
        "process": {"terminal": False, "user": {"uid": UID, "gid": UID}, "args": list(command), "cwd": "/tmp",
                    "env": [f"PATH={PATH}", *(f"{key}={value}" for key, value in environment.items())],
                    "capabilities": capabilities, "noNewPrivileges": True},
        "root": {"path": str(root), "readonly": True},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            _memory("/dev", "mode=755"), _memory("/dev/shm", "mode=1777", "nodev"),
            _memory("/tmp", "mode=1777", "nodev"),
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro", "nosuid", "noexec", "nodev"]},
            *({"destination": path, "type": "bind", "source": str(folder.resolve()), "options": ["rbind", "ro"]}
              for path, folder in read.items())],
        "linux": {"namespaces": [{"type": kind} for kind in NAMESPACES]},
    }


def _memory(path: str, *options: str) -> dict[str, Any]:
    return {"destination": path, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", *options]}
