"""What nobody uses goes, and nothing else: real files, real times."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from enginewright_builder.cli import main
from enginewright_builder.contract import MANIFEST_FILE, Outcome
from enginewright_builder.engine_store import folder as store
from enginewright_builder.engine_store import folder_gc as store_gc
from enginewright_builder.errors import UserError

DAY = 86_400.0
NAMES = [f"{number:x}" * 64 for number in range(6)]


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    path.mkdir()
    return path


def engine(shelf: Path, fingerprint: str, *, age: float = 0.0, wanted: float | None = None) -> Path:
    """A published engine: ``age`` seconds old, wanted by a build ``wanted`` seconds ago."""
    staging = shelf.parent / f"staging-{fingerprint[:4]}"
    (staging / "model_repository" / "model").mkdir(parents=True, exist_ok=True)
    (staging / "model_repository" / "model" / "config.pbtxt").write_text(fingerprint)
    store.publish(staging, shelf, fingerprint, outcome=Outcome(kind="build", ok=True, fingerprint=fingerprint))
    _age(shelf / fingerprint / MANIFEST_FILE, age)
    if wanted is not None:
        store_gc.mark_used(shelf, fingerprint)
        _age(shelf / f".{fingerprint}.used", wanted)
    return shelf / fingerprint


def _age(path: Path, seconds: float) -> None:
    moment = time.time() - seconds
    os.utime(path, (moment, moment))


@pytest.mark.parametrize(("age", "wanted", "gone"), [
    (8 * DAY, None, True), (6 * DAY, None, False), (80 * DAY, 6 * DAY, False), (80 * DAY, 8 * DAY, True)])
def test_an_engine_goes_when_it_was_not_wanted_for_the_grace_period(
    shelf: Path, age: float, wanted: float | None, gone: bool
) -> None:
    folder = engine(shelf, NAMES[0], age=age, wanted=wanted)
    found = store_gc.collect(shelf, grace_seconds=7 * DAY)
    assert folder.exists() is not gone
    assert (found.removed, found.spared) == (((NAMES[0],), ()) if gone else ((), (NAMES[0],)))
    if gone:
        assert list(shelf.iterdir()) == [], "nothing of it stays, the mark included"
    else:
        assert store.lookup(shelf, NAMES[0]) is not None


ENGINES = st.fixed_dictionaries({}, optional={
    name: st.tuples(st.floats(0, 20), st.none() | st.floats(0, 20)) for name in NAMES})


@given(engines=ENGINES, keep=st.sets(st.sampled_from(NAMES)), remove=st.none() | st.sets(st.sampled_from(NAMES)),
       grace=st.floats(0, 15))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_never_what_is_kept_nor_young_nor_not_asked_for(
    engines: dict[str, tuple[float, float | None]], keep: set[str], remove: set[str] | None, grace: float,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    shelf = tmp_path_factory.mktemp("gc") / "store"
    shelf.mkdir()
    for name, (age, wanted) in engines.items():
        engine(shelf, name, age=age * DAY, wanted=None if wanted is None else wanted * DAY)
    found = store_gc.collect(shelf, grace_seconds=grace * DAY, keep=keep, remove=remove)
    for name, (age, wanted) in engines.items():
        unused = min(age, age if wanted is None else wanted)
        protected = name in keep or (remove is not None and name not in remove)
        if protected or unused < grace - 1e-3:
            assert store.lookup(shelf, name) is not None
        elif unused > grace:
            assert name in found.removed
            assert not (shelf / name).exists()
    assert set(found.removed) | {path.name for path in shelf.iterdir() if len(path.name) == 64} == set(engines)


def test_a_build_that_wants_the_engine_at_that_moment_gets_it(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark comes between the collector's first look and its second: the engine is put back whole."""
    engine(shelf, NAMES[0], age=80 * DAY)
    real = Path.rename

    def marked_meanwhile(self: Path, target: Path) -> Path:
        if self.name == NAMES[0]:
            store_gc.mark_used(shelf, NAMES[0])
        return real(self, target)

    monkeypatch.setattr(Path, "rename", marked_meanwhile)
    assert store_gc.collect(shelf, grace_seconds=DAY).spared == (NAMES[0],)
    assert store.lookup(shelf, NAMES[0]) is not None


def test_what_is_built_anew_meanwhile_stays(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine(shelf, NAMES[0], age=80 * DAY)
    real = Path.rename

    def built_meanwhile(self: Path, target: Path) -> Path:
        moved = real(self, target)
        if self.name == NAMES[0]:
            monkeypatch.setattr(Path, "rename", real)
            store_gc.mark_used(shelf, NAMES[0])
            engine(shelf, NAMES[0])
        return moved

    monkeypatch.setattr(Path, "rename", built_meanwhile)
    store_gc.collect(shelf, grace_seconds=DAY)
    assert store.lookup(shelf, NAMES[0]) is not None


def test_leftovers_go_and_running_builds_and_strangers_stay(shelf: Path) -> None:
    old, running = shelf / f".{NAMES[1]}.abc.tmp", shelf / f".{NAMES[2]}.def.tmp"
    for folder in (old, running, shelf / "models", shelf / "timing-caches"):
        folder.mkdir()
        (folder / "file").write_text("x")
        _age(folder, 3 * DAY if folder is not running else 60)
    for name, age in ((NAMES[3], 3 * DAY), (NAMES[4], 60.0)):
        store_gc.mark_used(shelf, name)
        _age(shelf / f".{name}.used", age)
    found = store_gc.collect(shelf, grace_seconds=0)
    assert found.leftovers == 2
    assert sorted(path.name for path in shelf.iterdir()) == sorted(
        [running.name, "models", "timing-caches", f".{NAMES[4]}.used"])


def test_a_collector_that_was_killed_leaves_nothing_half(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine(shelf, NAMES[0], age=80 * DAY)

    def killed(path: Path, **_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        store_gc.collect(shelf, grace_seconds=DAY)
    assert store.lookup(shelf, NAMES[0]) is None
    (left,) = (path for path in shelf.iterdir() if path.name.endswith(".tmp"))
    monkeypatch.undo()
    _age(left, 2 * DAY)
    assert store_gc.collect(shelf, grace_seconds=DAY).leftovers == 1
    assert list(shelf.iterdir()) == []


def fill(path: Path) -> None:
    """Until the disk is full."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_a_full_disk_can_be_cleared(small_disk: Path) -> None:
    folder = engine(small_disk, NAMES[0], age=8 * DAY)
    fill(small_disk / "filler")
    assert shutil.disk_usage(small_disk).free == 0
    assert store_gc.collect(small_disk, grace_seconds=7 * DAY).removed == (NAMES[0],)
    assert not folder.exists()


def test_a_disk_that_is_read_only_is_told(small_disk: Path) -> None:
    engine(small_disk, NAMES[0], age=8 * DAY)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(UserError, match="cannot be written") as caught:
        store_gc.collect(small_disk, grace_seconds=7 * DAY)
    assert caught.value.reason == "StoreReadOnly"


def test_a_store_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not there"):
        store_gc.collect(tmp_path / "a" / "b", grace_seconds=0)


def test_on_the_command_line(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in NAMES[:3]:
        engine(shelf, name, age=10 * DAY)
    words = ["gc", "--store", str(shelf), "--grace", "604800", "--keep", NAMES[0]]
    assert main([*words, "--remove", NAMES[0], NAMES[1]]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"removed": [NAMES[1]], "spared": [NAMES[0]], "leftovers": 0}
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == [NAMES[2]]
    assert main(["gc", "--store", str(shelf / "none" / "x"), "--grace", "1"]) == 2
    assert json.loads(capsys.readouterr().out)["reason"] == "StoreMissing"


@pytest.mark.parametrize("words", [["--grace", "-1"], ["--grace", "nan"], ["--grace", "1", "--keep", "abc"], []])
def test_usage_is_told(words: list[str], shelf: Path) -> None:
    with pytest.raises(SystemExit):
        main(["gc", "--store", str(shelf), *words])
