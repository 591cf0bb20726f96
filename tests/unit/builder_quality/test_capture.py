"""Captured requests: bounded and even samples, whole captures or none, kept for a while and no longer."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import random
import signal
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright_builder.contract import ContractError
from enginewright_builder.data.files import read_samples
from enginewright_builder.engine_store import captures
from enginewright_builder.engine_store.captures import About, Capture, captures_of, prune, publish, remove_all, whole
from enginewright_builder.engine_store.signing import Keys
from enginewright_builder.quality.capture import CaptureRules, Capturing, write_samples
from enginewright_builder.quality.reservoir import Reservoir, Row

KEYS = Keys(current=b"k" * 64)
OTHER = Keys(current=b"o" * 64)
OF = "prod/net"
DAY = 86_400.0
NOW = 1_800_000_000.0


def about(until: float = NOW, **changed: object) -> About:
    plain = About(of=OF, revision="abc12345", since=until - DAY, until=until, expires=until + 7 * DAY, samples=3,
                  file="", digest="", size_bytes=0)
    return dataclasses.replace(plain, **changed)  # type: ignore[arg-type]


def lines(folder: Path) -> str:
    (folder / "samples.jsonl").write_text('{"x": [1.0]}\n' * 3)
    return "samples.jsonl"


def published(folder: Path, until: float = NOW, keys: Keys = KEYS, **changed: object) -> Capture:
    return publish(folder, lines, about(until, **changed), keys)


def rules(**changed: object) -> CaptureRules:
    return dataclasses.replace(CaptureRules(of=OF, revision="abc12345", samples=100, most_bytes=1 << 20, interval=DAY,
                                            retention=7 * DAY), **changed)  # type: ignore[arg-type]


def row(value: float, numbers: int = 1) -> Row:
    return {"x": np.full(numbers, value, np.float32)}


@given(st.lists(st.integers(1, 60), max_size=200), st.integers(1, 30), st.integers(4, 400), st.integers(0, 1000))
def test_a_reservoir_keeps_to_its_bounds(sizes: list[int], samples: int, most: int, seed: int) -> None:
    """In number and in bytes, after each row; and keeps rows that came by, each once, as they were."""
    kept = Reservoir(samples, most, random.Random(seed))
    for number, size in enumerate(sizes):
        kept.add(row(number, size))
        assert len(kept) <= samples
        assert kept.bytes == sum(one["x"].nbytes for one in kept.rows) <= most
    small = [number for number, size in enumerate(sizes) if 4 * size <= most]
    numbers = [int(one["x"][0]) for one in kept.rows]
    assert len(set(numbers)) == len(numbers)
    assert set(numbers) <= set(small)
    assert (kept.seen, kept.too_large) == (len(small), len(sizes) - len(small))
    assert bool(numbers) == bool(small)


@pytest.mark.parametrize("most", [1 << 20, 4 * 5], ids=["by number", "by bytes"])
def test_each_row_is_as_likely_to_be_kept(most: int) -> None:
    """Of 20 rows 5 are kept, in 4000 reservoirs: each row in 1000 of them, give or take 6 standard deviations."""
    found: Counter[int] = Counter()
    for seed in range(4000):
        kept = Reservoir(5 if most > 1000 else 20, most, random.Random(seed))
        for number in range(20):
            kept.add(row(number))
        found.update(int(one["x"][0]) for one in kept.rows)
    assert all(abs(found[number] - 1000) < 6 * (4000 * 0.25 * 0.75) ** 0.5 for number in range(20))


def test_texts_count_with_their_bytes() -> None:
    kept = Reservoir(100, 100, random.Random(1))
    for number in range(30):
        kept.add({"s": np.array([f"{number:06}é"], object)})
    assert kept.bytes == 8 * len(kept) <= 100


def test_a_row_is_kept_without_the_batch_it_came_in() -> None:
    kept = Reservoir(1, 1 << 20, random.Random(1))
    batch = np.zeros((1000, 4), np.float32)
    kept.add({"x": batch[3]})
    (only,) = kept.rows
    assert only["x"].base is None


@pytest.mark.parametrize("rows", [
    [{"x": np.array([0.1, -2e30], np.float32), "ids": np.array([[3], [7]], np.int64)},
     {"x": np.array([5, 6], np.float32), "ids": np.array([[1], [0]], np.int64)}],
    [{"x": np.array([0.1], np.float32)}, {"x": np.array([0.1, 3.25], np.float32)}],
    [{"x": np.array([True, False])}, {"x": np.array([False, False])}],
    [{"x": np.array([0, 255], np.uint8)}, {"x": np.array([7, 8], np.uint8)}],
    [{"s": np.array(["say \"a\"\n", "é"], object)}, {"s": np.array(["", "\u2028"], object)}],
], ids=["one shape", "different lengths", "bool", "bytes", "texts"])
def test_what_is_written_is_read_as_evaluation_data(rows: list[Row], tmp_path: Path) -> None:
    read = read_samples(tmp_path / write_samples(tmp_path, rows), words=True)
    assert len(read) == len(rows)
    for one, other in zip(rows, read.rows, strict=True):
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[name], other[name].astype(one[name].dtype)) for name in one)


def test_a_whole_capture_is_found_and_for_its_owner_alone(tmp_path: Path) -> None:
    made = published(tmp_path)
    (found,) = whole(tmp_path, OF, KEYS, NOW + 1)
    assert found == made
    assert stat.S_IMODE(made.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in made.folder.iterdir()} == {0o600}
    copy = captures.taken(made, tmp_path / "elsewhere")
    assert copy.read_text() == '{"x": [1.0]}\n' * 3


def test_the_newest_comes_first_and_what_has_expired_counts_no_more(tmp_path: Path) -> None:
    for age in (3, 1, 2):
        published(tmp_path, NOW - age * DAY)
    assert [one.about.until for one in whole(tmp_path, OF, KEYS, NOW)] == [NOW - DAY, NOW - 2 * DAY, NOW - 3 * DAY]
    assert len(whole(tmp_path, OF, KEYS, NOW + 5 * DAY)) == 1
    assert prune(tmp_path, NOW + 5 * DAY) == 2
    assert len(list(tmp_path.iterdir())) == 1


def test_what_no_monitor_of_this_model_signed_does_not_count(tmp_path: Path) -> None:
    published(tmp_path, keys=OTHER)
    made = published(tmp_path, of="prod/other")
    assert whole(tmp_path, OF, KEYS, NOW) == []
    told = json.loads((made.folder / "capture.json").read_text())
    (made.folder / "capture.json").write_text(json.dumps({**told, "of": OF}))
    assert whole(tmp_path, OF, KEYS, NOW) == [], "a capture of another model, renamed"
    assert whole(tmp_path / "none", OF, KEYS, NOW) == []
    assert len(whole(tmp_path, "prod/net", Keys(current=b"n" * 64, previous=OTHER.current), NOW)) == 1


@pytest.mark.parametrize("field", ["expires", "samples", "digest", "file", "since"])
def test_nothing_that_it_says_can_be_changed(field: str, tmp_path: Path) -> None:
    path = published(tmp_path).folder / "capture.json"
    told = json.loads(path.read_text())
    told[field] = told[field] + 1 if isinstance(told[field], int | float) else "samples.npz"
    path.write_text(json.dumps(told))
    assert whole(tmp_path, OF, KEYS, NOW) == []


def test_samples_that_were_changed_are_not_taken(tmp_path: Path) -> None:
    made = published(tmp_path)
    (made.folder / "samples.jsonl").write_text('{"x": [2.0]}\n' * 3)
    with pytest.raises(OSError, match="is not what its monitor wrote"):
        captures.taken(made, tmp_path / "copy")
    (made.folder / "samples.jsonl").write_text("x" * 10_000_000)
    with pytest.raises(OSError, match="is not what its monitor wrote"):
        captures.taken(made, tmp_path / "copy")
    assert (tmp_path / "copy" / "samples.jsonl").stat().st_size == made.about.size_bytes + 1, "no more is read"


def test_a_pipe_in_the_place_of_a_file_keeps_no_reader_waiting(tmp_path: Path) -> None:
    """A pod that captures may make one, and to open it would never end."""
    folder = captures_of(tmp_path, OF)
    folder.mkdir(parents=True)
    made, other = published(folder), published(folder, until=NOW + 60)
    for path in (made.folder / "samples.jsonl", other.folder / "capture.json"):
        path.unlink()
        os.mkfifo(path)
    assert whole(folder, OF, KEYS, NOW + 60) == [made]
    with pytest.raises(OSError, match="not a plain file"):
        captures.taken(made, tmp_path / "copy")


def test_no_link_is_followed(tmp_path: Path) -> None:
    secret, folder = tmp_path / "secret", tmp_path / "captures"
    secret.write_text("a secret")
    folder.mkdir()
    made = published(folder)
    (made.folder / "samples.jsonl").unlink()
    (made.folder / "samples.jsonl").symlink_to(secret)
    with pytest.raises(OSError, match="symbolic links"):
        captures.taken(made, tmp_path / "copy")
    outside = published(tmp_path)
    (folder / outside.name).symlink_to(outside.folder)
    assert [one.folder for one in whole(folder, OF, KEYS, NOW)] == [made.folder]
    (folder / "link").symlink_to(tmp_path)
    assert remove_all(folder) == 3
    assert secret.exists()
    assert (outside.folder / "samples.jsonl").exists()
    assert not folder.exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from enginewright_builder.engine_store import captures
from enginewright_builder.engine_store.signing import Keys
step, folder = int(sys.argv[1]), Path(sys.argv[2])
seen = 0
def at(name, call):
    def stopped(*arguments, **more):
        global seen
        seen += 1
        if seen == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **more)
    return stopped
Path.mkdir = at("mkdir", Path.mkdir)
Path.chmod = at("chmod", Path.chmod)
Path.rename = at("rename", Path.rename)
captures.flush = at("flush", captures.flush)
captures._write = at("write", captures._write)
captures.sha256_file = at("hash", captures.sha256_file)
def write(target):
    with (target / "samples.jsonl").open("w") as file:
        file.write('{"x": [1.0]}\\n')
        file.flush()
        at("samples", lambda: None)()
        file.write('{"x": [2.0]}\\n')
    return "samples.jsonl"
about = captures.About(of="prod/net", revision="abc12345", since=1.0, until=float(sys.argv[3]), samples=2,
                       expires=float(sys.argv[3]) + 1000, file="", digest="", size_bytes=0)
captures.publish(folder, write, about, Keys(current=b"k" * 64))
print("done")
"""


def test_a_writer_that_is_killed_at_any_step_leaves_a_whole_capture_or_none(tmp_path: Path) -> None:
    """Steps are the calls that touch the disk. What is left over goes when it is old."""
    ended, outcomes = False, set()
    for step in range(1, 30):
        folder = tmp_path / str(step)
        os.mkdir(folder)
        run = subprocess.run([sys.executable, "-c", KILLED, str(step), str(folder), str(NOW)], capture_output=True,
                             text=True, check=False)
        found = whole(folder, OF, KEYS, NOW)
        for one in found:
            assert captures.taken(one, tmp_path / "copy").read_text().count("\n") == 2
        outcomes.add(len(found))
        if run.stdout:
            ended = True
            break
        assert run.returncode == -signal.SIGKILL, run.stderr
        left = list(folder.iterdir())
        assert len(left) <= 1
        for path in left:
            os.utime(path, (NOW, NOW))
        assert prune(folder, NOW) == 0, "a writer may be at work"
        for path in left:
            os.utime(path, (NOW - 2 * captures.STALE_SECONDS,) * 2)
        assert prune(folder, NOW) == (1 if left and not found else 0)
        assert not list(folder.iterdir()) or found
    assert ended
    assert outcomes == {0, 1}


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def full(folder: Path) -> str:
        (folder / "samples.npz").write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        publish(tmp_path, full, about(), KEYS)
    assert not list(tmp_path.iterdir())


def test_never_more_than_the_most_captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captures, "MOST_CAPTURES", 3)
    for age in range(5):
        published(tmp_path, NOW - age * 60)
    assert prune(tmp_path, NOW) == 2
    assert [one.about.until for one in whole(tmp_path, OF, KEYS, NOW)] == [NOW, NOW - 60, NOW - 120]


@pytest.mark.parametrize("of", ["net", "../net", "a/../b", "a/b/c", "/net", "a/", "a/B", "a/.."])
def test_only_a_namespace_and_a_model_name_a_folder(of: str, tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="expected NAMESPACE/MODEL"):
        captures_of(tmp_path, of)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def capturing(folder: Path, clock: Clock, *, batched: bool = True, **changed: object) -> Capturing:
    return Capturing(folder, rules(**changed), KEYS, clock, batched=batched, dice=random.Random(3))


def test_requests_become_a_capture_when_the_interval_is_over(tmp_path: Path) -> None:
    clock = Clock()
    found = capturing(tmp_path, clock)
    for number in range(10):
        found.add({"x": np.full((2, 3), number, np.float32)})
        found.turn()
    clock.now += DAY - 1
    found.turn()
    assert not list(tmp_path.iterdir()), "nothing is written before"
    clock.now += 1
    found.turn()
    (made,) = whole(tmp_path, OF, KEYS, clock.now)
    assert (made.about.samples, made.about.since, made.about.until) == (20, NOW, NOW + DAY)
    assert made.about.expires == clock.now + 7 * DAY
    samples = read_samples(made.folder / made.about.file)
    assert sorted(float(one["x"][0]) for one in samples.rows) == sorted([*range(10), *range(10)])
    clock.now += DAY
    found.turn()
    assert len(whole(tmp_path, OF, KEYS, clock.now)) == 1, "none without requests"
    clock.now += 6 * DAY + 60
    found.turn()
    assert not list(tmp_path.iterdir()), "its retention is over"


def test_of_several_replicas_one_writes_the_capture_of_an_interval(tmp_path: Path) -> None:
    clock = Clock()
    replicas = [capturing(tmp_path, clock) for _ in range(3)]
    for _ in range(2):
        for replica in replicas:
            replica.add({"x": np.ones((1, 3), np.float32)})
        clock.now += DAY
        for replica in replicas:
            replica.turn()
    assert len(whole(tmp_path, OF, KEYS, clock.now)) == 2


def test_a_request_of_a_model_without_batches_is_one_sample(tmp_path: Path) -> None:
    clock = Clock()
    found = capturing(tmp_path, clock, batched=False)
    found.add({"x": np.arange(6, dtype=np.float32).reshape(2, 3)})
    clock.now += DAY
    found.turn()
    (made,) = whole(tmp_path, OF, KEYS, clock.now)
    (only,) = read_samples(made.folder / made.about.file).rows
    assert only["x"].shape == (2, 3)


def test_a_sample_that_no_evaluation_would_take_is_left_out(tmp_path: Path) -> None:
    clock = Clock()
    found = capturing(tmp_path, clock)
    found.add({"x": np.array([[1, np.nan], [2, 3], [np.inf, 0]], np.float32)})
    clock.now += DAY
    found.turn()
    (made,) = whole(tmp_path, OF, KEYS, clock.now)
    assert made.about.samples == 1


def test_a_store_that_cannot_be_written_costs_the_capture_and_nothing_else(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log says why, once, and no value of a request."""
    clock = Clock()
    found = capturing(tmp_path / "missing", clock)
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            found.add({"x": np.full((1, 1), 424242, np.float32)})
            clock.now += DAY
            found.turn()
    assert caplog.messages == ["requests cannot be captured: FileNotFoundError: No such file or directory"]
    (tmp_path / "missing").mkdir()
    found.add({"x": np.ones((1, 1), np.float32)})
    clock.now += DAY
    found.turn()
    assert found.failed == ""
    assert len(whole(tmp_path / "missing", OF, KEYS, clock.now)) == 1
