"""The machine is put back to what it was before the first start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster import host, sweep
from cluster.steps import ClusterError

SETTING = "net/ipv4/ip_forward"


@pytest.fixture
def proc_sys(tmp_path: Path) -> Path:
    root = tmp_path / "proc-sys"
    (root / SETTING).parent.mkdir(parents=True)
    (root / SETTING).write_text("0\n")
    return root


@pytest.fixture
def directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """One directory that is there already, one that is not."""
    there, absent = tmp_path / "there", tmp_path / "absent"
    there.mkdir()
    monkeypatch.setattr(host, "DIRECTORIES", (there, absent))
    return there, absent


@pytest.mark.usefixtures("directories")
def test_a_changed_setting_is_put_back(tmp_path: Path, proc_sys: Path) -> None:
    record = tmp_path / "host.json"
    host.remember(record, proc_sys)
    (proc_sys / SETTING).write_text("1\n")
    host.remember(record, proc_sys)  # a second start must not take the changed value for the original
    host.restore(record, proc_sys)
    assert (proc_sys / SETTING).read_text().strip() == "0"


@pytest.mark.usefixtures("directories")
def test_settings_of_an_earlier_boot_are_not_put_back(tmp_path: Path, proc_sys: Path) -> None:
    record = tmp_path / "host.json"
    host.remember(record, proc_sys)
    record.write_text(json.dumps(json.loads(record.read_text()) | {"boot_id": "earlier"}))
    (proc_sys / SETTING).write_text("1\n")
    host.restore(record, proc_sys)
    assert (proc_sys / SETTING).read_text().strip() == "1"


def test_only_directories_that_were_not_there_are_removed(
    tmp_path: Path, proc_sys: Path, directories: tuple[Path, Path]
) -> None:
    there, absent = directories
    record = tmp_path / "host.json"
    host.remember(record, proc_sys)
    absent.mkdir()
    record.write_text(json.dumps(json.loads(record.read_text()) | {"boot_id": "earlier"}))
    host.remember(record, proc_sys)  # after a restart of the machine it is there, and still ours
    host.restore(record, proc_sys)
    assert there.is_dir()
    assert not absent.exists()


def test_nothing_is_restored_without_a_record(tmp_path: Path, proc_sys: Path) -> None:
    host.restore(tmp_path / "none.json", proc_sys)
    assert (proc_sys / SETTING).read_text() == "0\n"


MOUNTINFO = """\
21 1 254:0 / / rw - ext4 /dev/vda rw
30 21 0:5 / /run/enginewright rw - tmpfs tmpfs rw
31 30 0:6 / /run/enginewright/containerd/a\\040b rw - overlay overlay rw
32 21 0:7 / /run/enginewright2/x rw - tmpfs tmpfs rw
33 31 0:8 / /run/enginewright/containerd/a\\040b/proc rw - proc proc rw
34 21 0:9 / /home/run/enginewright rw - tmpfs tmpfs rw
"""


def test_mounts_are_found_below_a_directory_alone_and_the_innermost_first() -> None:
    assert sweep.mount_points(MOUNTINFO, [Path("/run/enginewright")]) == [
        "/run/enginewright/containerd/a b/proc",
        "/run/enginewright/containerd/a b",
        "/run/enginewright",
    ]


def test_a_directory_is_not_removed_while_something_stays_mounted_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    monkeypatch.setattr(sweep, "_mounted", lambda below: ["/nowhere/that/umount/could/find"])
    with pytest.raises(ClusterError, match="still mounted"):
        sweep.remove_tree(kept)
    assert kept.is_dir()


def test_only_links_to_our_pods_logs_are_removed(tmp_path: Path) -> None:
    links, logs = tmp_path / "containers", tmp_path / "pod-logs"
    links.mkdir()
    (links / "ours.log").symlink_to(logs / "pod" / "0.log")
    (links / "theirs.log").symlink_to("/var/log/pods/other/0.log")
    (links / "file.log").write_text("")
    sweep.log_links(links, logs)
    assert sorted(path.name for path in links.iterdir()) == ["file.log", "theirs.log"]
    sweep.log_links(tmp_path / "absent", logs)
