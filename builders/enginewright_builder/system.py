"""What this process may use of the machine it runs on."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
# linux/prctl.h
_PR_SET_PDEATHSIG = 1


def available_cpus(cgroup: Path = _CGROUP) -> int:
    """Whole CPUs this process may run on: its affinity, cut by the container's quota; at least 1."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota(cgroup)
    return max(1, min(usable, round(quota) if quota else usable))


def _cgroup_quota(cgroup: Path) -> float | None:
    """CPUs by quota, cgroup v2 (``cpu.max``) or v1 (``cpu.cfs_quota_us``); None without a quota."""
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        limit = int((cgroup / "cpu/cpu.cfs_quota_us").read_text())
        return limit / int((cgroup / "cpu/cpu.cfs_period_us").read_text()) if limit > 0 else None
    except (OSError, ValueError):
        return None


def memory_bytes() -> int:
    """Physical memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def free_memory_bytes(cgroup: Path = _CGROUP) -> int:
    """What this process and its children may still take: of the machine, cut by the container's limit."""
    free = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) << 10
    with contextlib.suppress(OSError, ValueError):
        limit = int((cgroup / "memory.max").read_text())
        free = min(free, limit - int((cgroup / "memory.current").read_text()))
    return max(0, free)


def end_with_parent() -> None:
    """Has the kernel end this process once its parent has ended, also where it is stopped: a build that is killed would
    leave a process that holds the GPU's memory. ``prctl(2)``, ``PR_SET_PDEATHSIG``; Linux alone."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:  # it ended before the kernel was asked
        os.kill(os.getpid(), signal.SIGKILL)


def cpu_flags() -> frozenset[str]:
    return frozenset(_cpuinfo("flags").split())


def cpu_name() -> str:
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _cpuinfo(key: str) -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == key:
                return value.strip()
    except OSError:
        pass
    return ""


def limit_threads(count: int) -> None:
    """Sets the pools of numeric libraries; only has an effect before they are imported."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, str(count))
    # On a busy machine OpenMP's waiting threads spin while the one they wait for has no core: PyTorch took twice as
    # long so, which would flatter every candidate's speedup.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
