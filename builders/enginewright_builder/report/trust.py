"""Whether to trust a report: what its figures rest on, each with where the page says how it was measured. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from enginewright_builder.contract import requests_needed
from enginewright_builder.data.sets import SYNTHETIC
from enginewright_builder.report.model import BuildReport
from enginewright_builder.report.words import is_offered, per_second

Tone = Literal["good", "warn", "bad"]
MARKS: dict[Tone, str] = {"good": "✓", "warn": "!", "bad": "✕"}
# Half of the 95 % interval of throughput, over the throughput. Beyond it the machine was busy, or the window short.
STEADY = 0.15
# Below so many samples a lower bound hangs on a handful of answers.
FEW_SAMPLES = 100


@dataclass(frozen=True, kw_only=True)
class Check:
    """``how`` is the page's anchor that says how it was measured."""

    tone: Tone
    text: str
    how: str

    @property
    def mark(self) -> str:
        return MARKS[self.tone]


def _good(how: str, text: str) -> Check:
    return Check(tone="good", how=how, text=text)


def _warn(how: str, text: str) -> Check:
    return Check(tone="warn", how=how, text=text)


def _bad(how: str, text: str) -> Check:
    return Check(tone="bad", how=how, text=text)


def checks(report: BuildReport) -> list[Check]:
    """Those that could be made of this report, the weightiest first."""
    return [*_accuracy(report), *_served(report), *_load(report), *_model(report)]


def summary(found: list[Check]) -> str:
    """One line above them."""
    held = sum(one.tone == "good" for one in found)
    if held == len(found):
        return f"All {held} checks hold:"
    rest = "the other one" if len(found) - held == 1 else "the others"
    return f"{held} of {len(found)} checks hold. Mind {rest}:"


def _accuracy(report: BuildReport) -> Iterator[Check]:
    accuracy = report.accuracy
    asked = f"{1 - accuracy.tolerance:.4f}"
    if is_offered(report):
        yield _bad("accuracy", f"The accuracy gate asks for {asked}, and the lower bound is {accuracy.low:.4f}: "
                   "nothing is served.")
    else:
        yield _good("accuracy", f"The accuracy gate asks for {asked}, and with 95 % confidence the engine reaches "
                    f"{accuracy.low:.4f}.")
    count = f"{accuracy.samples:,} samples"
    if accuracy.evaluation == SYNTHETIC:
        yield _warn("accuracy", f"The {count} are made up by the builder. Yours may lose more: name them in "
                    "spec.accuracy.evaluation.")
    elif accuracy.samples < FEW_SAMPLES:
        yield _warn("accuracy", f"There are {count} of yours. Give {FEW_SAMPLES} or more, so that the bound does not "
                    "hang on a few.")
    else:
        yield _good("accuracy", f"The {count} are yours, and calibration never saw them.")
    groups = accuracy.summary
    if groups and groups.too_small_count:
        yield _warn("accuracy", f"Groups by {groups.by} with too few samples to be judged: {groups.too_small_count}.")


def _served(report: BuildReport) -> Iterator[Check]:
    """What is served is reported on after its repository was loaded and asked."""
    if report.sweep is not None:
        yield _good("proof", "A tritonserver loaded what is published, and answered as the engine does.")


def _load(report: BuildReport) -> Iterator[Check]:
    if report.sweep is None:
        return
    best, percentile = report.sweep.best, f"p{report.objective.latency_percentile:g}"
    needed = requests_needed(report.objective.latency_percentile)
    if best.errors:
        yield _bad("latency", f"{best.errors:,} of {best.requests:,} requests failed while it was measured.")
    if best.requests < needed:
        yield _warn("latency", f"{percentile} takes {needed:,} requests, and {best.requests:,} were measured: it is "
                    "the slowest of them. A larger spec.engine.buildBudgetSeconds measures more.")
    else:
        yield _good("latency", f"{percentile} is of {best.requests:,} requests.")
    if best.throughput <= 0:
        return
    spread = (best.throughput_high - best.throughput_low) / 2 / best.throughput
    interval = f"95 % interval {per_second(best.throughput_low)} to {per_second(best.throughput_high)}"
    yield (_warn("throughput", f"Throughput varied ({interval}): other work ran beside it, or the window was short.")
           if spread > STEADY else _good("throughput", f"Throughput was steady ({interval})."))


def _model(report: BuildReport) -> Iterator[Check]:
    if report.engine.fallback:
        yield _warn("speedup", f"No candidate may be served ({report.engine.fallback}): the source model itself ships.")
    if report.engine.too_few_requests:
        yield _warn("latency", f"{report.engine.requests:,} requests kept the latency objective, and it takes "
                    f"{report.engine.requests_to_show:,} to say that it is met. A larger "
                    "spec.engine.buildBudgetSeconds measures more.")
    elif not report.engine.objective_met:
        yield _warn("latency", "The latency objective is missed.")
