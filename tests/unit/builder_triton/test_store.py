from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from enginewright_builder import verify as program
from enginewright_builder.contract import MANIFEST_FILE, ContractError, Manifest, Outcome
from enginewright_builder.engine_store import folder as store
from enginewright_builder.engine_store.manifest import (
    EXIT_DAMAGED,
    VerificationError,
    manifest_digest,
    sha256_file,
    verify,
)
from enginewright_builder.errors import BuilderError, TransientError, UserError

FP = "ab" * 32
OUTCOME = Outcome(kind="build", ok=True, fingerprint=FP)
FILES = {
    "build-report.json": b"{}",
    "model_repository/m/config.pbtxt": b"name: 'm'",
    "model_repository/m/1/model.onnx": b"x" * 4096,
}


def stage(root: Path, files: dict[str, bytes] | None = None) -> Path:
    for name, data in (FILES if files is None else files).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def publish(staging: Path, shelf: Path) -> Manifest:
    return store.publish(staging, shelf, FP, outcome=OUTCOME)


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    return stage(tmp_path / "staging")


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    path.mkdir()
    return path


def test_published_engine_is_found_whole(staging: Path, shelf: Path) -> None:
    assert store.lookup(shelf, FP) is None
    manifest = publish(staging, shelf)
    assert store.lookup(shelf, FP) == manifest
    assert set(manifest.files) == set(FILES)
    assert {name: (shelf / FP / name).read_bytes() for name in FILES} == FILES
    assert [path.name for path in shelf.iterdir()] == [FP]


def test_manifest_digest_is_of_the_file_in_the_store(staging: Path, shelf: Path) -> None:
    manifest = publish(staging, shelf)
    assert manifest_digest(manifest) == f"sha256:{sha256_file(shelf / FP / MANIFEST_FILE)}"


def test_second_publisher_gets_the_first_ones_engine(staging: Path, shelf: Path, tmp_path: Path) -> None:
    first = publish(staging, shelf)
    other = stage(tmp_path / "other", {"other": b"other"})
    assert publish(other, shelf) == first
    assert not (shelf / FP / "other").exists()


def test_an_engine_that_vanishes_as_it_is_published_is_built_again(
    staging: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "flush", lambda path: shutil.rmtree(path / FP, ignore_errors=True))
    with pytest.raises(TransientError, match="vanished from the store") as caught:
        publish(staging, shelf)
    assert caught.value.reason == "StoreUnstable"


def test_many_publishers_at_once_leave_one_engine(shelf: Path, tmp_path: Path) -> None:
    stagings = [stage(tmp_path / f"s{number}", {"who": str(number).encode()}) for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        manifests = list(pool.map(lambda staging: publish(staging, shelf), stagings))
    assert len({manifest_digest(manifest) for manifest in manifests}) == 1
    assert [path.name for path in shelf.iterdir()] == [FP]


def test_folder_without_manifest_is_absent_and_replaced(staging: Path, shelf: Path) -> None:
    stage(shelf / FP, {"half": b"written"})
    assert store.lookup(shelf, FP) is None
    publish(staging, shelf)
    assert not (shelf / FP / "half").exists()


class Killed(BaseException):
    """Stands for kill -9: no handler of ours may run a clean-up that matters for readers."""


STEPS: list[tuple[object, str]] = [
    (os, "fsync"),
    (os, "rename"),
    (os, "open"),
    (os, "mkdir"),
    (io, "open"),
    (shutil, "copyfileobj"),
    (store, "sha256_file"),
    (store, "verify"),
]


@given(step=st.sampled_from(STEPS), after=st.integers(0, 12))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_killed_anywhere_a_reader_sees_all_or_nothing(
    step: tuple[object, str], after: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("killed")
    staging, shelf = stage(root / "staging"), root / "store"
    shelf.mkdir()
    owner, name = step
    real: Callable[..., object] = getattr(owner, name)
    calls = iter(range(after + 1))

    def dying(*args: object, **kwargs: object) -> object:
        if next(calls, None) is None:
            raise Killed
        return real(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, dying)
        patch.setattr(shutil, "rmtree", lambda *args, **kwargs: None)  # the dead clean nothing
        with contextlib.suppress(Killed, BuilderError):
            publish(staging, shelf)
    seen = store.lookup(shelf, FP)
    if seen is not None:
        assert set(seen.files) == set(FILES)
    assert publish(staging, shelf) == store.lookup(shelf, FP)


@pytest.mark.parametrize(
    ("number", "kind", "reason"),
    [
        (errno.ENOSPC, UserError, "StoreFull"),
        (errno.EDQUOT, UserError, "StoreFull"),
        (errno.EROFS, UserError, "StoreReadOnly"),
        (errno.EACCES, UserError, "StoreReadOnly"),
        (errno.EIO, TransientError, "StoreUnavailable"),
        (errno.ESTALE, TransientError, "StoreUnavailable"),
    ],
)
def test_what_the_file_system_says_becomes_what_to_do(
    number: int, kind: type[BuilderError], reason: str, staging: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*args: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(shutil, "copyfileobj", failing)
    with pytest.raises(kind) as caught:
        publish(staging, shelf)
    assert caught.value.reason == reason
    assert caught.value.remedy
    assert list(shelf.iterdir()) == []


def test_a_disk_that_is_really_full(small_disk: Path, tmp_path: Path) -> None:
    staging = stage(tmp_path / "big", {"model": b"x" * (2 << 20)})
    with pytest.raises(UserError, match="full") as caught:
        publish(staging, small_disk)
    assert caught.value.reason == "StoreFull"
    assert list(small_disk.iterdir()) == []
    with pytest.raises(UserError) as caught:
        store.check_writable(small_disk, need_bytes=2 << 20)
    assert caught.value.reason == "StoreFull"


def test_a_disk_that_is_really_read_only(small_disk: Path, staging: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(UserError) as caught:
        publish(staging, small_disk)
    assert caught.value.reason == "StoreReadOnly"
    with pytest.raises(UserError) as caught:
        store.check_writable(small_disk)
    assert caught.value.reason == "StoreReadOnly"


def test_missing_store(staging: Path, tmp_path: Path) -> None:
    volume = tmp_path / "no" / "store"
    attempts: list[Callable[[], object]] = [
        lambda: publish(staging, volume),
        lambda: store.check_writable(volume),
        lambda: store.lookup(volume, FP),
    ]
    for attempt in attempts:
        with pytest.raises(UserError) as caught:
            attempt()
        assert caught.value.reason == "StoreMissing"


def test_a_folder_of_a_volume_is_made(shelf: Path) -> None:
    store.check_writable(shelf / "team")
    assert (shelf / "team").is_dir()


def test_check_writable_leaves_nothing(shelf: Path) -> None:
    store.check_writable(shelf, need_bytes=1)
    assert list(shelf.iterdir()) == []


def test_links_and_empty_engines_are_not_published(shelf: Path, tmp_path: Path) -> None:
    staging = stage(tmp_path / "linked")
    (staging / "link").symlink_to("/etc/hostname")
    with pytest.raises(ValueError, match="link"):
        publish(staging, shelf)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="nothing"):
        publish(tmp_path / "empty", shelf)
    assert list(shelf.iterdir()) == []


def test_bytecode_caches_are_not_part_of_an_engine(staging: Path, shelf: Path) -> None:
    stage(staging, {"model_repository/m/1/__pycache__/model.pyc": b"cache"})
    assert set(publish(staging, shelf).files) == set(FILES)
    stage(shelf / FP, {"model_repository/m/1/__pycache__/model.pyc": b"cache"})
    assert store.lookup(shelf, FP) is not None


def test_only_old_leftovers_are_swept(shelf: Path) -> None:
    old, young = shelf / f".{FP}.1.tmp", shelf / f".{FP}.2.tmp"
    for folder in (old, young):
        stage(folder, {"half": b"x"})
    before = time.time() - store.STALE_SECONDS - 60
    os.utime(old, (before, before))
    assert store.sweep_stale(shelf) == [old]
    assert young.exists()


@pytest.mark.parametrize("fingerprint", ["", "..", "ab/../cd", "AB" * 32, "ab" * 31])
def test_fingerprints_cannot_leave_the_store(fingerprint: str, shelf: Path) -> None:
    with pytest.raises(ContractError, match="64 hex digits"):
        store.lookup(shelf, fingerprint)


def _truncate(folder: Path) -> None:
    (folder / "model_repository/m/1/model.onnx").write_bytes(b"x" * 4095)


def _flip(folder: Path) -> None:
    (folder / "model_repository/m/1/model.onnx").write_bytes(b"x" * 4095 + b"y")


def _remove(folder: Path) -> None:
    (folder / "build-report.json").unlink()


def _add(folder: Path) -> None:
    stage(folder, {"model_repository/m/2/model.onnx": b"evil"})


def _link(folder: Path) -> None:
    target = folder / "build-report.json"
    target.unlink()
    target.symlink_to("/etc/hostname")


def _garble(folder: Path) -> None:
    (folder / MANIFEST_FILE).write_text("{")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_truncate, "4095 bytes"),
        (_flip, "digest"),
        (_remove, "missing"),
        (_add, "not in the manifest"),
        (_link, "plain file"),
        (_garble, "not valid"),
    ],
)
def test_damage_is_found_by_init_container_and_by_builder_and_mended(
    damage: Callable[[Path], None],
    words: str,
    staging: Path,
    shelf: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    publish(staging, shelf)
    damage(shelf / FP)
    os.utime(shelf / FP, (0, 0))
    message = tmp_path / "termination-log"
    message.touch()
    monkeypatch.setenv("TERMINATION_LOG", str(message))
    assert program.main([str(shelf / FP), "--fingerprint", FP]) == EXIT_DAMAGED
    assert words in capsys.readouterr().err
    assert words in message.read_text()
    with pytest.raises(TransientError, match=words) as caught:
        store.lookup(shelf, FP)
    assert caught.value.reason == "EngineCorrupt"
    (aside,) = [path for path in shelf.iterdir() if FP in path.name]
    assert time.time() - aside.stat().st_mtime < store.STALE_SECONDS, "kept for a day from now, however old the engine"
    # The next try finds nothing and builds it again.
    assert store.lookup(shelf, FP) is None
    assert set(publish(staging, shelf).files) == set(FILES)


def test_a_whole_engine_that_took_a_damaged_ones_place_meanwhile_stays(
        staging: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two builds find the damage; the slower one knows of it when the other has published."""
    publish(staging, shelf)
    _flip(shelf / FP)
    theirs: list[Manifest] = []

    def slowly(*args: object, **how: object) -> Manifest:
        monkeypatch.undo()
        try:
            return verify(*args, **how)  # type: ignore[arg-type]
        finally:
            with pytest.raises(TransientError, match="damaged"):
                store.lookup(shelf, FP)
            theirs.append(store.publish(staging, shelf, FP, outcome=dataclasses.replace(OUTCOME, build_seconds=9.0)))

    monkeypatch.setattr(store, "verify", slowly)
    with pytest.raises(TransientError, match="damaged"):
        store.lookup(shelf, FP)
    assert theirs == [store.lookup(shelf, FP)]


def test_verify_runs_with_the_standard_library_alone(staging: Path, shelf: Path) -> None:
    publish(staging, shelf)
    source = Path(program.__file__).parent.parent
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path.insert(0, {str(source)!r}); sys.argv = ['verify', {str(shelf / FP)!r}]; "
            "import runpy; runpy.run_module('enginewright_builder.verify', run_name='__main__')",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "is whole: 3 files" in done.stdout


def test_verify_refuses_another_engine(staging: Path, shelf: Path) -> None:
    publish(staging, shelf)
    with pytest.raises(VerificationError, match="wanted"):
        verify(shelf / FP, "cd" * 32)


def test_verify_refuses_a_whole_engine_that_is_not_the_proven_one(staging: Path, shelf: Path) -> None:
    manifest = publish(staging, shelf)
    verify(shelf / FP, manifest_digest=manifest_digest(manifest))
    with pytest.raises(VerificationError, match="the engine that was proven has sha256:0"):
        verify(shelf / FP, manifest_digest="sha256:" + "0" * 64)


def test_published_files_are_readable_by_the_server_of_another_user(staging: Path, shelf: Path) -> None:
    before = os.umask(0o077)
    try:
        publish(staging, shelf)
    finally:
        os.umask(before)
    for path in [shelf / FP, *(shelf / FP).rglob("*")]:
        mode = path.stat().st_mode
        assert mode & stat.S_IROTH, path
        assert not path.is_dir() or mode & stat.S_IXOTH, path
