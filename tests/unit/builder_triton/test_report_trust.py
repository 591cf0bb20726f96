"""What a report's figures rest on, and how each was measured."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from enginewright_builder.contract import GroupsSummary
from enginewright_builder.measure.energy import DeviceUse
from enginewright_builder.report import BuildReport
from enginewright_builder.report.methods import methods
from enginewright_builder.report.trust import FEW_SAMPLES, STEADY, checks, summary


def with_best(report: BuildReport, **changes: Any) -> BuildReport:
    assert report.sweep
    best = dataclasses.replace(report.sweep.best, **changes)
    return dataclasses.replace(report, sweep=dataclasses.replace(report.sweep, best=best))


def with_accuracy(report: BuildReport, **changes: Any) -> BuildReport:
    return dataclasses.replace(report, accuracy=dataclasses.replace(report.accuracy, **changes))


def sound(report: BuildReport) -> BuildReport:
    held_out = with_accuracy(report, evaluation="held-out", samples=FEW_SAMPLES)
    return with_best(held_out, requests=1000, errors=0, throughput=100.0, throughput_low=90.0, throughput_high=110.0)


def told(report: BuildReport, tone: str) -> str:
    return " ".join(one.text for one in checks(report) if one.tone == tone)


def test_a_sound_report_has_nothing_to_mind(report: BuildReport) -> None:
    found = checks(sound(report))
    assert {one.tone for one in found} == {"good"}
    assert summary(found) == f"All {len(found)} checks hold:"
    assert [one.mark for one in found] == ["✓"] * len(found)


@pytest.mark.parametrize(("change", "text"), [
    (lambda one: with_accuracy(one, evaluation="synthetic"), "spec.accuracy.evaluation"),
    (lambda one: with_accuracy(one, samples=FEW_SAMPLES - 1), f"Give {FEW_SAMPLES} or more"),
    (lambda one: with_accuracy(one, summary=GroupsSummary(by="lang", judged=3, worst="de", too_small=("fi",),
                                                          too_small_count=1)), "Groups by lang"),
    (lambda one: with_best(one, requests=99), "p99 takes 100 requests, and 99 were measured"),
    (lambda one: with_best(one, throughput_high=90.0 + 2.2 * 100 * STEADY), "Throughput varied"),
    (lambda one: dataclasses.replace(one, engine=dataclasses.replace(one.engine, fallback="AccuracyNotReached")),
     "AccuracyNotReached"),
    (lambda one: dataclasses.replace(one, engine=dataclasses.replace(one.engine, objective_met=False)), "is missed"),
    (lambda one: dataclasses.replace(one, engine=dataclasses.replace(one.engine, objective_met=False, requests=120,
                                                                     requests_to_show=205)),
     "120 requests kept the latency objective, and it takes 205"),
], ids=["synthetic", "few samples", "small groups", "few requests", "unsteady", "fallback", "objective",
        "too few to say"])
def test_what_is_to_be_minded_is_said_with_the_remedy(change: Any, text: str, report: BuildReport) -> None:
    found = checks(change(sound(report)))
    assert text in told(change(sound(report)), "warn")
    assert summary(found).endswith("Mind the other one:")


def test_failed_requests_and_a_failed_gate_are_bad(report: BuildReport) -> None:
    assert "7 of 1,000 requests failed" in told(with_best(sound(report), errors=7), "bad")
    offered = dataclasses.replace(report.candidates[0], verdict="Offered")
    failed = dataclasses.replace(sound(report), candidates=(offered,))
    assert "nothing is served" in told(failed, "bad")


def test_without_a_sweep_nothing_is_said_of_serving(report: BuildReport) -> None:
    assert {one.how for one in checks(dataclasses.replace(sound(report), sweep=None))} == {"accuracy"}


def test_each_check_says_how_it_was_measured(report: BuildReport) -> None:
    for one in (report, sound(report), with_accuracy(report, evaluation="synthetic")):
        assert {check.how for check in checks(one)} <= {how for how, _, _ in methods(one)}


def test_methods_hold_the_figures_of_the_report(report: BuildReport) -> None:
    text = {how: words for how, _, words in methods(sound(report))}
    assert "1,000 requests of one sample each" in text["latency"]
    assert "90.0/s to 110/s" in text["throughput"]
    assert f"each of {FEW_SAMPLES} samples of spec.accuracy.evaluation" in text["accuracy"]
    assert "made up by the builder" in {how: words for how, _, words in methods(
        with_accuracy(report, evaluation="synthetic"))}["accuracy"]


@pytest.mark.parametrize(("meter", "text"), [("rapl", "RAPL"), ("nvml", "NVML"), ("triton", "Triton's metrics"),
                                             ("", "no energy counter")])
def test_the_meter_of_energy_is_named(meter: str, text: str, report: BuildReport) -> None:
    assert report.performance
    performance = dataclasses.replace(report.performance, use=DeviceUse(meter=meter, seconds=1.0))
    found = {how: words for how, _, words in methods(dataclasses.replace(report, performance=performance))}
    assert text in found["energy"]


def test_memory_is_said_of_the_gpu_where_there_is_one(report: BuildReport) -> None:
    on_gpu = dataclasses.replace(report, hardware=dataclasses.replace(report.hardware, gpus=("NVIDIA-H100",)))
    assert "on the GPU" in {how: words for how, _, words in methods(on_gpu)}["size"]
