"""What a killed cluster leaves behind, of any maker: processes, mounts, cgroups."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from cluster import process
from cluster.packages import system_program
from cluster.paths import ClusterPaths
from cluster.steps import ClusterError

CGROUP_ROOT = Path("/sys/fs/cgroup")
# kubelet puts every pod below this name, in each hierarchy.
POD_CGROUP = "kubepods"
EMPTY_WITHIN_S = 10.0


def processes(paths: ClusterPaths) -> None:
    """End what still runs: our programs and their children first, then pods whose supervisor died."""
    process.stop_all(process.strays(paths.state), grace_s=5.0)
    deadline = time.monotonic() + EMPTY_WITHIN_S
    while pids := _pod_pids():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise ClusterError(f"processes of pods do not end: {sorted(pids)}")
        time.sleep(0.05)


def cgroups() -> None:
    """Remove the pods' cgroups, innermost first."""
    for root in pod_cgroups():
        for directory, _, _ in os.walk(root, topdown=False):
            with contextlib.suppress(FileNotFoundError):
                Path(directory).rmdir()


def mount_points(mountinfo: str, below: Iterable[Path]) -> list[str]:
    """Mount points, out of /proc/self/mountinfo, at or below the given directories; the innermost and latest first."""
    roots = [str(root) for root in below]
    found = []
    for line in mountinfo.splitlines():
        # Space, tab, newline and backslash are written in octal.
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), line.split()[4])
        if any(point == root or point.startswith(root + "/") for root in roots):
            found.append(point)
    return found[::-1]


def unmount(*below: Path) -> None:
    """Unmount all at or below the given directories.

    Raises:
        ClusterError: something stays mounted. Callers must not remove the directories then: a volume of the user's
            may lie behind such a mount.
    """
    for point in _mounted(below):
        subprocess.run((system_program("umount"), "--lazy", point), capture_output=True, check=False)
    if left := _mounted(below):
        raise ClusterError(f"still mounted, unmount by hand and repeat: {', '.join(left)}")


def remove_tree(path: Path) -> None:
    """Remove a directory that nothing is mounted in."""
    unmount(path)
    shutil.rmtree(path, ignore_errors=True)


def log_links(directory: Path, pod_logs: Path) -> None:
    """Remove the links that kubelet put into /var/log/containers for our pods."""
    if not directory.is_dir():
        return
    for link in directory.iterdir():
        if link.is_symlink() and str(link.readlink()).startswith(f"{pod_logs}/"):
            link.unlink()


def _mounted(below: Iterable[Path]) -> list[str]:
    return mount_points(Path("/proc/self/mountinfo").read_text(), below)


def pod_cgroups() -> list[Path]:
    """The pods' cgroup: one in the unified hierarchy, or one in each of version 1."""
    candidates = (CGROUP_ROOT / POD_CGROUP, *CGROUP_ROOT.glob(f"*/{POD_CGROUP}"))
    return [path for path in candidates if path.is_dir() and not path.parent.is_symlink()]


def _pod_pids() -> set[int]:
    pids: set[int] = set()
    for root in pod_cgroups():
        for listing in root.rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                pids.update(int(line) for line in listing.read_text().split())
    # 0 stands for a process of another PID namespace than ours.
    return pids - {0}
