"""What the cluster changes on the machine: noted before the first start, put back when it is removed."""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster.process import boot_id

# Set by kubelet (its kernel defaults), by the pods' network plug-in and by kube-proxy.
SETTINGS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/route_localnet",
    "net/ipv4/vs/conntrack",
    "net/netfilter/nf_conntrack_max",
    "net/netfilter/nf_conntrack_tcp_be_liberal",
    "net/netfilter/nf_conntrack_tcp_timeout_established",
    "net/netfilter/nf_conntrack_tcp_timeout_close_wait",
)
# Directories that kubelet and the network library make at fixed places; removed only where they were not there before.
DIRECTORIES = (
    Path("/var/lib/kubelet"),
    Path("/var/log/containers"),
    Path("/var/log/pods"),
    Path("/var/lib/cni"),
    Path("/usr/libexec/kubernetes"),
    Path("/run/containerd"),
    Path("/opt/containerd"),
)


@dataclass(frozen=True)
class HostRecord:
    """The machine before the cluster.

    Attributes:
        boot_id: settings are those of this boot; another boot has set its own.
        absent: directories of DIRECTORIES that were not there.
    """

    boot_id: str
    settings: dict[str, str]
    absent: tuple[str, ...]


def remember(path: Path, proc_sys: Path = Path("/proc/sys")) -> None:
    """Write the machine's present state to `path`, unless a record of this boot is there already."""
    earlier = _read(path)
    if earlier is not None and earlier.boot_id == boot_id():
        return
    settings = {}
    for name in SETTINGS:
        with contextlib.suppress(OSError):
            settings[name] = (proc_sys / name).read_text().strip()
    absent = earlier.absent if earlier is not None else tuple(str(each) for each in DIRECTORIES if not each.exists())
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(HostRecord(boot_id(), settings, absent))))
    temporary.rename(path)


def restore(path: Path, proc_sys: Path = Path("/proc/sys")) -> None:
    """Put settings back to what they were and remove directories that were not there."""
    record = _read(path)
    if record is None:
        return
    if record.boot_id == boot_id():
        for name, value in record.settings.items():
            _restore_setting(proc_sys / name, value)
    mounted = {line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()}
    for directory in record.absent:
        # Ours are unmounted by now: a mount below belongs to a process that came after us.
        if not any(point == directory or point.startswith(f"{directory}/") for point in mounted):
            shutil.rmtree(directory, ignore_errors=True)


def _restore_setting(path: Path, value: str) -> None:
    with contextlib.suppress(OSError):
        if path.read_text().strip() != value:
            path.write_text(value)


def _read(path: Path) -> HostRecord | None:
    try:
        fields = json.loads(path.read_text())
        return HostRecord(fields["boot_id"], fields["settings"], tuple(fields["absent"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
