"""``make test`` with programs that fail as the real ones do: every step runs, and the end says all that failed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
STEPS = ["environment", "lint", "types", "imports", "generated", "unit", "triton", "packages", "programs",
         "integration", "e2e", "tensorflow", "image-vllm", "vllm-packages", "smollm2", "vllm"]
PROGRAMS = ("hack/dev/bootstrap.sh", "hack/dev/tensorflow.sh", "hack/dev/vllm.sh", "hack/dev/smollm2.sh",
            "hack/bin-deps.sh", "hack/images/images", "hack/cluster/cluster", "hack/dev/can-run-node.sh", "bin/ruff",
            "bin/mypy", "bin/lint-imports", "bin/make", "bin/pytest")
PYTEST_FAILS = """case "$*" in *"{part}"*) echo "FAILED tests/test_{name}.py::test_{name} - assert 0"
  echo "1 failed, 2 passed in 0.10s"; exit 1;; esac; echo "3 passed in 0.10s"
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The script where all that it calls is a stand-in that succeeds."""
    for file in ("hack/dev/check.sh", "hack/lib/common.sh"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    for program in PROGRAMS:
        stand_in(tmp_path, program, "echo '3 passed in 0.10s'")
    return tmp_path


def stand_in(copy: Path, program: str, does: str) -> None:
    file = copy / program
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/bash\n{does}\n")
    file.chmod(0o755)


def run(copy: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    # Not in the background, where interrupts are ignored from the start, whatever the tests were started from.
    return subprocess.run(["bash", str(copy / "hack/dev/check.sh")], capture_output=True, text=True, check=False,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                          env={"PATH": f"{copy / 'bin'}:{os.environ['PATH']}", "ENGINEWRIGHT_VENV": str(copy),
                               "ENGINEWRIGHT_CACHE": str(copy / "cache"), **environment})


def check(copy: Path, **environment: str) -> tuple[int, dict[str, str], str]:
    """Exit status, result by step, and what the end says after the table."""
    done = run(copy, **environment)
    table, _, end = done.stdout.partition("step ")[2].partition("\n\n")
    rows = [line.split(maxsplit=2) for line in table.splitlines()[1:]]
    return done.returncode, {name: result for name, _, result in rows}, end


def test_all_that_succeeds_is_said_and_the_cluster_that_it_started_goes(copy: Path) -> None:
    stand_in(copy, "hack/cluster/cluster", '[[ "$1" != status ]]')
    status, results, end = check(copy)
    assert (status, results) == (0, dict.fromkeys([*STEPS, "cluster-down"], "ok"))
    assert end.count("3 passed") == 5


def test_a_step_that_fails_stops_no_other_and_the_end_names_all_failures(copy: Path) -> None:
    stand_in(copy, "bin/mypy", "echo 'a.py:1: error: no such name'; exit 1")
    stand_in(copy, "bin/pytest", PYTEST_FAILS.format(part="-m triton", name="served")
             + PYTEST_FAILS.format(part="tests/e2e", name="demo"))
    status, results, end = check(copy)
    assert status == 1
    assert results == {**dict.fromkeys(STEPS, "ok"), "types": "FAILED", "triton": "FAILED", "e2e": "FAILED"}
    for said in ("types failed (build/test/types.log):\na.py:1: error: no such name\n",
                 "triton failed (build/test/triton.log):\nFAILED tests/test_served.py::test_served - assert 0\n",
                 "e2e failed (build/test/e2e.log):\nFAILED tests/test_demo.py::test_demo - assert 0\n"):
        assert said in end


def test_without_an_environment_nothing_else_runs(copy: Path) -> None:
    stand_in(copy, "hack/dev/bootstrap.sh", "echo 'no Python 3.11'; exit 1")
    status, results, end = check(copy)
    assert (status, results) == (1, {"environment": "FAILED"})
    assert "no Python 3.11" in end


@pytest.mark.parametrize(("environment", "status", "result"), [
    ({}, 0, "skipped: no cgroup"), ({"ENGINEWRIGHT_REQUIRE_E2E": "1"}, 1, "FAILED")])
def test_a_machine_that_cannot_run_a_node_is_said_or_is_a_failure(environment: dict[str, str], status: int, result: str,
                                                                  copy: Path) -> None:
    stand_in(copy, "hack/dev/can-run-node.sh", "echo 'no cgroup'; exit 1")
    (copy / "build/test").mkdir(parents=True)
    (copy / "build/test/e2e.log").write_text("FAILED tests/test_old.py::test_old - of another run\n")
    found, results, end = check(copy, **environment)
    of_others = [step for step in STEPS if step != "image-vllm"]
    assert (found, results) == (status, {**dict.fromkeys(of_others, "ok"), "e2e": result})
    assert "test_old" not in end


def test_end_to_end_tests_and_those_with_servers_run_beside_all_else(copy: Path) -> None:
    """Each of the four waits until the others have begun, and gives up in the end."""
    stand_in(copy, "bin/pytest", """
case "$*" in *"integration and not"*) name=integration;; *"-m triton"*) name=triton;; *tests/golden*) name=unit;;
             *tests/e2e*) name=e2e;; *) name=other;; esac
echo "$name speaks"; touch "began-$name"
[[ $name != other ]] || { echo "3 passed in 0.10s"; exit 0; }
for _ in $(seq 600); do
  [[ ! -e began-triton || ! -e began-unit || ! -e began-e2e || ! -e began-integration ]] ||
    { echo "3 passed in 0.10s"; exit 0; }
  sleep 0.1
done
exit 1
""")
    done, results, _ = check(copy)
    assert (done, results) == (0, dict.fromkeys(STEPS, "ok"))
    for name in ("unit", "triton", "integration"):
        assert f"{name} speaks" in (copy / f"build/test/{name}.log").read_text()


def test_a_vllm_begins_beside_the_end_to_end_tests_once_those_with_an_apiserver_have_ended(copy: Path) -> None:
    """End-to-end and unit tests end only once it has begun, and give up in the end."""
    stand_in(copy, "bin/pytest", """
case "$*" in *"integration and not"*) sleep 0.2; touch ended-apiserver;;
             *"-m vllm"*) [[ -e ended-apiserver ]] || exit 1; touch began-vllm;; esac
case "$*" in *tests/e2e*|*tests/golden*) after=began-vllm;; *) after=.;; esac
for _ in $(seq 600); do
  [[ ! -e $after ]] || { echo "3 passed in 0.10s"; exit 0; }
  sleep 0.1
done
exit 1
""")
    done, results, _ = check(copy)
    assert (done, results) == (0, dict.fromkeys(STEPS, "ok"))


def test_what_holds_leases_or_must_be_ready_in_time_does_not_give_way(copy: Path) -> None:
    stand_in(copy, "bin/pytest", """nice; echo "3 passed in 0.10s" """)
    own = os.nice(0)
    assert check(copy)[0] == 0
    found = {name: int((copy / f"build/test/{name}.log").read_text().split()[0]) - own
             for name in ("e2e", "integration", "vllm", "unit", "triton")}
    assert found == {"e2e": 0, "integration": 0, "vllm": 0, "unit": min(10, 19 - own), "triton": min(10, 19 - own)}


def test_of_what_runs_beside_them_the_result_alone_is_shown(copy: Path) -> None:
    stand_in(copy, "bin/pytest", """
case "$*" in *tests/e2e*) for _ in $(seq 600); do [[ -e over ]] && break; sleep 0.1; done; echo "e2e speaks";;
             *) echo "another speaks"; [[ "$*" != *tests/golden* ]] || touch over;; esac
""")
    said = run(copy).stdout
    assert "e2e speaks" in said
    for step in ("lint", "unit", "integration", "triton", "vllm"):
        assert f"==> {step}" in said
    assert "==> unit: ok after " in said
    assert "another speaks" not in said.partition("e2e speaks")[0]
    assert "another speaks" in (copy / "build/test/unit.log").read_text()


def test_who_interrupts_it_ends_what_runs_beside_as_well(copy: Path) -> None:
    stand_in(copy, "bin/pytest", """
case "$*" in *"-m triton"*) name=triton;; *tests/golden*) name=unit;; *) name=other;; esac
[[ $name = other ]] || { trap 'touch $name-ended; exit 1' INT; touch $name-began; while :; do sleep 0.1; done; }
[[ "$*" != *tests/e2e* ]] || { until [[ -e unit-began && -e triton-began ]]; do sleep 0.1; done
                               kill -TERM "$PPID"; exit 1; }
""")
    assert run(copy).returncode != 0
    assert (copy / "unit-ended").exists()
    assert (copy / "triton-ended").exists()
