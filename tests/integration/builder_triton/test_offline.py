"""A data set through a real tritonserver: whole, in order, each row once, whatever is killed meanwhile."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from enginewright_builder.contract import ErrorReport, Outcome
from enginewright_builder.tensors import Array
from enginewright_builder.triton.server import TritonServer

pytestmark = pytest.mark.triton
WEIGHTS = np.random.default_rng(7).standard_normal((8, 4)).astype(np.float32)
ENGINE = "a" * 64
KILLS = 20
ROWS, CHUNK = 6_007, 19


def command(server: TritonServer, data: Path, output: Path, *more: object) -> list[str]:
    words = ["--input", data, "--output", output, "--model", "multiply", "--engine", ENGINE, "--http",
             server.address.http, "--grpc", server.address.grpc, "--ready-seconds", 60, *more]
    return [sys.executable, "-m", "enginewright_builder", "batch", *map(str, words)]


def run(server: TritonServer, data: Path, output: Path, *more: object) -> Outcome:
    done = subprocess.run(command(server, data, output, *more), capture_output=True, text=True, check=False)
    outcome = Outcome.from_json(done.stdout.splitlines()[-1])
    assert done.returncode == (0 if outcome.ok else 2), done.stderr
    return outcome


def error_of(outcome: Outcome) -> ErrorReport:
    assert outcome.error is not None
    return outcome.error


def answers(folder: Path) -> Array:
    return np.concatenate([np.load(path)["y"] for path in sorted(folder.glob("answers-*.npz"))])


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Array]:
    x = np.random.default_rng(3).standard_normal((ROWS, 3, 8)).astype(np.float32)
    path = tmp_path_factory.mktemp("rows") / "rows.npz"
    np.savez(path, x=x)
    return path, x


def whole(folder: Path, x: Array, shards: int) -> None:
    """Every row is answered, once, in its place, and the manifests say so."""
    np.testing.assert_allclose(answers(folder), x @ WEIGHTS, rtol=1e-5, atol=1e-5)
    told = [json.loads((folder / f"shard-{shard:06d}.json").read_text()) for shard in range(shards)]
    covered = [row for one in told for file in one["files"] for row in range(file["start"], file["stop"])]
    assert covered == list(range(len(x)))
    assert sorted(file["file"] for one in told for file in one["files"]) == sorted(
        path.name for path in folder.glob("answers-*"))
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]  # nothing half-written is left


def test_it_is_killed_twenty_times_and_nothing_is_lost_or_doubled(
        server: TritonServer, rows: tuple[Path, Array], tmp_path: Path) -> None:
    data, x = rows
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    assert run(server, data, unbroken, "--chunk-rows", CHUNK).ok
    chance = random.Random(27)
    for kill in range(KILLS):
        _killed(command(server, data, broken, "--chunk-rows", CHUNK), chance)
        for path in broken.glob("answers-*"):  # what has a name is whole
            assert len(np.load(path)["y"]) == _length(path), kill
        if (broken / "shard-000000.json").exists():  # on a machine that did not let the killer in
            whole(broken, x, 1)
            shutil.rmtree(broken)
    outcome = run(server, data, broken, "--chunk-rows", CHUNK)
    assert outcome.shard
    assert outcome.shard.rows == ROWS
    whole(broken, x, 1)
    names = sorted(path.name for path in unbroken.glob("answers-*"))
    assert names == sorted(path.name for path in broken.glob("answers-*"))
    for name in names:  # as if nothing had happened
        np.testing.assert_allclose(np.load(broken / name)["y"], np.load(unbroken / name)["y"], rtol=1e-5, atol=1e-6)


def _killed(words: list[str], chance: random.Random) -> None:
    """After a few files of answers, at any moment of the next ones."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        for _ in range(chance.randrange(1, 5)):
            child.stdout.readline()
        time.sleep(chance.uniform(0, 0.1))
        child.kill()


def _length(path: Path) -> int:
    start, stop = map(int, re.findall(r"\d+", path.name)[:2])
    return stop - start


def test_two_programs_on_one_shard_and_several_shards(server: TritonServer, rows: tuple[Path, Array],
                                                      tmp_path: Path) -> None:
    """As when a node is lost and comes back, while another pod has taken over."""
    data, x = rows
    both = [subprocess.Popen(command(server, data, tmp_path / "out", "--chunk-rows", 500, "--shards", 3),
                             stdout=subprocess.DEVNULL, env={**os.environ, "JOB_COMPLETION_INDEX": str(index)})
            for index in (0, 0, 2)]
    assert [one.wait() for one in both] == [0, 0, 0]
    assert run(server, data, tmp_path / "out", "--shards", 3, "--shard", 1).ok
    whole(tmp_path / "out", x, 3)
    again = run(server, data, tmp_path / "out", "--shards", 3, "--shard", 1)
    assert again.shard
    assert (again.shard.answered, again.shard.total) == (0, ROWS)


@pytest.mark.asyncio(loop_scope="session")
async def test_a_server_that_goes_away_ends_the_try_and_not_the_run(
        server: TritonServer, repository: Path, rows: tuple[Path, Array], tmp_path: Path) -> None:
    data, x = rows
    out = tmp_path / "out"
    async with TritonServer(repository, models=("multiply",)) as other:
        # As long as this process may pause on a busy machine: the server must be found ready first.
        words = command(other, data, out, "--chunk-rows", CHUNK, "--ready-seconds", 15)
        # What the program says of all its files does not fit into the pipe: it cannot end before the server does.
        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        child = await asyncio.create_subprocess_exec(*words, stdout=writer)
        os.close(writer)
        said = await asyncio.to_thread(_said, reader, other)
        assert await child.wait() == 3
    assert error_of(Outcome.from_json(said[-1])).reason == "BatchRequestFailed"
    assert run(server, data, out).ok
    whole(out, x, 1)


def _said(reader: int, server: TritonServer) -> list[str]:
    """By the program at the pipe's other end, whose server goes away after the first line."""
    with open(reader, "rb", buffering=0) as stdout:
        stdout.readline()
        os.kill(server.pid, signal.SIGKILL)
        return stdout.read().decode().splitlines()


def test_lines_of_other_lengths_come_back_in_order(server: TritonServer, tmp_path: Path) -> None:
    chance = np.random.default_rng(5)
    sent = [chance.standard_normal((int(length), 8)).astype(np.float32) for length in chance.integers(1, 5, 40)]
    data = tmp_path / "rows.jsonl"
    data.write_text("\n\n".join(json.dumps({"x": one.tolist()}) for one in sent) + "\n")
    assert run(server, data, tmp_path / "out", "--chunk-rows", 7).ok
    lines = [json.loads(line) for path in sorted((tmp_path / "out").glob("answers-*.jsonl"))
             for line in path.read_text().splitlines()]
    assert len(lines) == len(sent)
    for line, one in zip(lines, sent, strict=True):
        np.testing.assert_allclose(np.array(line["y"]), one @ WEIGHTS, rtol=1e-5, atol=1e-5)


def test_answers_of_two_runs_are_not_mixed(server: TritonServer, rows: tuple[Path, Array],
                                           tmp_path: Path) -> None:
    _, x = rows
    small, out = tmp_path / "rows.npz", tmp_path / "out"
    np.savez(small, x=x[:30])
    assert run(server, small, out).ok
    engine = run(server, small, out, "--engine", "b" * 64)
    np.savez(small, x=x[30:60])
    other = run(server, small, out)
    assert [error_of(one).reason for one in (engine, other)] == ["BatchOutputInvalid"] * 2
    assert "answers of another engine" in error_of(engine).message
    assert "answers of another input" in error_of(other).message
    np.testing.assert_allclose(answers(out), x[:30] @ WEIGHTS, rtol=1e-5, atol=1e-5)


def test_bad_rows_are_named_and_what_was_answered_stays(server: TritonServer, rows: tuple[Path, Array],
                                                        tmp_path: Path) -> None:
    _, x = rows
    data, out = tmp_path / "rows.npz", tmp_path / "out"
    bad = x[:30].copy()
    bad[25, 0, 0] = np.nan
    np.savez(data, x=bad)
    failed = run(server, data, out, "--chunk-rows", 5)
    assert (error_of(failed).reason, error_of(failed).field) == ("BatchInputInvalid", "spec.batch.input.uri")
    assert "sample 25: x holds NaN" in error_of(failed).message
    assert len(sorted(out.glob("answers-*"))) >= 4
    np.savez(data, x=x[:30, :, :7])
    assert "shape [3, 7], expected" in error_of(run(server, data, tmp_path / "other")).message
