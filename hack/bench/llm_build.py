"""The real ``enginewright-build --task generate`` on SmolLM2, and what its report says."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import llm_quantised
from bench.llm_prompts import prompts
from enginewright_builder.contract import load, to_plain
from enginewright_builder.generate.trial import Trial
from enginewright_builder.report.generation import GenerateReport

REPORT = "build-report.json"
# A build ends within its budget and some seconds; one that has not is not going to.
PATIENCE_SECONDS = 60.0
NOISE = "NoiseFloorTooHigh"


def run(given: argparse.Namespace, result: dict[str, Any], part: str, forms: Sequence[str] = ()) -> Iterator[None]:
    """Adds ``part`` to the result, and yields when there is something to save. Copies of the model in ``forms`` are
    checkpoints that compete."""
    end = time.monotonic() + given.build_seconds
    found: dict[str, Any] = {"refused": []}
    result[part] = found
    with tempfile.TemporaryDirectory(prefix="build-") as folder:
        listed = [f"--checkpoint={form}={_copy(given, Path(folder), form)}" for form in forms]
        data = Path(folder) / "prompts.jsonl"
        data.write_text("\n".join(prompts(given.prompts, given.answer_tokens)) + "\n")
        for tolerance in given.tolerances.split(","):
            budget = round(end - time.monotonic())
            words = ["--task", "generate", "--model", str(given.inputs / "smollm2"), "--name", "smollm2",
                     "--evaluation", str(data), "--tolerance", tolerance, "--accelerator", given.accelerator,
                     *listed, "--budget-seconds", str(budget)]
            begin, store = time.monotonic(), Path(folder) / tolerance
            status, text = _ran([sys.executable, "-m", "enginewright_builder", *words, "--output", str(store),
                                 "--json"], budget + PATIENCE_SECONDS)
            found |= {"command": _typed(words), "seconds": round(time.monotonic() - begin, 1), "budget_s": budget,
                      "tolerance": float(tolerance)}
            if status == 0:
                found |= shipped(load(GenerateReport, _report(store).read_text()))
                yield
                return
            found["refused"].append({"tolerance": float(tolerance), "why": _why(text)})
            yield
            if NOISE not in text:
                raise RuntimeError(f"enginewright-build ended with status {status}: {text[-3000:]}")


def _copy(given: argparse.Namespace, folder: Path, form: str) -> Path:
    llm_quantised.write(given.inputs / "smollm2", folder / f"smollm2-{form}", form)
    return folder / f"smollm2-{form}"


def _ran(command: Sequence[str], seconds: float) -> tuple[int, str]:
    """Status and output; -9 where it had to be killed, with all that it started."""
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            status = child.wait(seconds)
        except subprocess.TimeoutExpired:
            status = -signal.SIGKILL
        finally:
            if child.poll() is None:
                # It ends its server, which has a session of its own.
                child.send_signal(signal.SIGTERM)
                try:
                    child.wait(20)
                except subprocess.TimeoutExpired:
                    child.kill()
        output.seek(0)
        text = output.read().decode(errors="replace")
    sys.stderr.write(text)
    return status, text


def _why(text: str) -> str:
    for line in reversed(text.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and "problem" in json.dumps(found):
            return json.dumps(found)[:600]
    return text[-600:]


def _typed(words: Sequence[str]) -> str:
    """As a person types it: files by their names."""
    return " ".join(["enginewright-build", *(re.sub(rf"(^|=){os.sep}.*{os.sep}", r"\1", one) for one in words)])


def _report(store: Path) -> Path:
    (found,) = store.glob(f"*/{REPORT}")
    return found


def shipped(report: GenerateReport) -> dict[str, Any]:
    """What the page and its readers need of a report."""
    floor = report.trials[0].judgement
    assert floor is not None
    return {"shipped": report.serving.name, "words": list(report.serving.words), "gain": report.gain,
            "confirmed": report.confirmed, "architecture": report.architecture, "prompts": to_plain(report.prompts),
            "floor": {"disagreement": floor.disagreement.floor, "divergence": floor.divergence.floor,
                      "places": floor.places},
            "steps": dict(report.steps), "notes": list(report.notes), "trials": [trial(one) for one in report.trials]}


def trial(one: Trial) -> dict[str, Any]:
    """``loss`` and ``divergence`` are of the gate, None where it was not held against the reference."""
    return {"name": one.name, "precision": one.precision, "verdict": one.verdict, "reason": one.reason,
            "start_s": round(one.start_seconds, 1), "gate_s": round(one.gate_seconds, 1),
            "loss": to_plain(one.judgement.disagreement) if one.judgement else None,
            "divergence": to_plain(one.judgement.divergence) if one.judgement else None,
            "points": [to_plain(point) for point in one.points]}
