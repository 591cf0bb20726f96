"""Traces, curves and reports: what is read, and what is refused with which words."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from enginewright_simulation.curve import of_figures, of_points
from enginewright_simulation.errors import InputError
from enginewright_simulation.report import read_report
from enginewright_simulation.scale import scaled
from enginewright_simulation.trace import read_trace


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(text: str, name: str = "trace.csv") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2224670,879,55
"""


@pytest.mark.parametrize(
    ("text", "arrivals"),
    [
        pytest.param(AZURE, [0.0, 4.314579, 4.541877], id="Azure's format"),
        pytest.param("id,TIMESTAMP\n7,2023-11-16T18:15:46Z\n8,2023-11-16T19:15:47+01:00\n", [0.0, 1.0],
                     id="time zones"),
        pytest.param("TIMESTAMP\n1700158546.5\n1700158548\n", [0.0, 1.5], id="seconds since 1970"),
        pytest.param("\ufeffTIMESTAMP\r\n3\r\n\r\n3\r\n4\r\n", [0.0, 0.0, 1.0],
                     id="Windows, equal times, a blank line"),
    ],
)
def test_a_csv_with_a_timestamp_column_is_a_trace(written: Any, text: str, arrivals: list[float]) -> None:
    assert read_trace(written(text)).arrivals == pytest.approx(arrivals)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", "trace.csv: is empty; give a CSV", id="empty file"),
        pytest.param("TIMESTAMP,x\n", "trace.csv: has no request below its header", id="header only"),
        pytest.param("time,x\n1,2\n", "trace.csv:1: has no column TIMESTAMP, but time, x; name the column",
                     id="column"),
        pytest.param("TIMESTAMP\n5\n7\n6.5\n", "trace.csv:4: TIMESTAMP 6.5 is 0.5 s before the line above it; sort",
                     id="unsorted"),
        pytest.param("TIMESTAMP\n16/11/2023 18:15\n", "trace.csv:2: TIMESTAMP 16/11/2023 18:15 is in another format; "
                     "write ISO 8601 such as 2023-11-16 18:15:46.68", id="another format"),
        pytest.param("TIMESTAMP,x\n1,2\n,3\n", "trace.csv:3: TIMESTAMP is empty; write", id="a gap in the column"),
        pytest.param("TIMESTAMP\n1700158546000\n", "trace.csv:2: TIMESTAMP 1700158546000 is not in seconds; divide",
                     id="milliseconds"),
        pytest.param("TIMESTAMP\n-99999999999\n", "trace.csv:2: TIMESTAMP -99999999999 is before 1970; write "
                     "seconds since 1970", id="before all dates"),
        pytest.param("TIMESTAMP\n0001-01-01\n", "trace.csv:2: TIMESTAMP 0001-01-01 is too far from today; write ISO",
                     id="first date"),
        pytest.param("TIMESTAMP\n9999-12-31T23:59:59Z\n", "trace.csv:2: TIMESTAMP 9999-12-31T23:59:59Z is too far",
                     id="last date"),
        pytest.param("TIMESTAMP\nnan\n", "trace.csv:2: TIMESTAMP nan is not a time", id="nan"),
        pytest.param("TIMESTAMP\n2023-11-16 18:15:46\n2023-11-16T18:15:47Z\n", "trace.csv:3: TIMESTAMP "
                     "2023-11-16T18:15:47Z has a time zone, unlike those before it", id="zones mixed"),
        pytest.param('{"status": ', "trace.csv:1: is not JSON", id="cut JSON"),
    ],
)
def test_a_bad_trace_is_refused_by_file_line_and_value(written: Any, text: str, words: str) -> None:
    with pytest.raises(InputError) as refused:
        read_trace(written(text))
    assert words in str(refused.value)


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.csv: cannot be read: .*give a CSV"):
        read_trace(tmp_path / "nothing.csv")


def test_a_long_pause_is_told_and_simulated_as_silence(written: Any) -> None:
    times = [*range(300), *range(5000, 5300)]
    trace = read_trace(written("TIMESTAMP\n" + "\n".join(map(str, times))))
    assert trace.seconds == 5299
    assert trace.notes == (
        "Pauses without requests: 1, the longest of 4701 s from second 299 on; they are simulated as silence. If "
        "requests are missing there, cut the trace.",
    )
    assert read_trace(written(AZURE)).notes == ()


def range_data(*series: Sequence[object]) -> str:
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [
        {"metric": {}, "values": values} for values in series]}})


def test_range_data_of_prometheus_become_requests_at_its_rates(written: Any) -> None:
    values = [[1000 + 60 * step, "20" if step < 5 else "2.5"] for step in range(10)]
    path = written(range_data(values, [[1000 + 60 * step, "5"] for step in range(10)]), "range.json")
    arrivals = read_trace(path, seed=1).arrivals
    counts = Counter(int(came // 300) for came in arrivals)
    assert counts[0] == pytest.approx(300 * 25, rel=0.05)
    assert counts[1] == pytest.approx(300 * 7.5, rel=0.1)
    assert arrivals == sorted(arrivals)
    assert read_trace(path, seed=1).arrivals == arrivals != read_trace(path, seed=2).arrivals


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(range_data(), "is empty, Prometheus found nothing; give the JSON of query_range", id="no series"),
        pytest.param(range_data([[0, "1"]]), "has 1 step of data", id="one step"),
        pytest.param(range_data([[0, "1"], [60, "1"], [240, "1"]]), "has no data between 60 and 240, 180 s at steps of "
                     "60 s", id="a gap"),
        pytest.param(range_data([[0, "0"], [60, "0"]]), "has no request, all rates are 0", id="silence"),
        pytest.param(range_data([[0, "NaN"], [60, "1"]]), '[0, "NaN"] is not a rate', id="nan"),
        pytest.param(range_data([[0, "-1"], [60, "1"]]), '[0, "-1"] is not a rate', id="negative"),
        pytest.param(range_data([[0], [60]]), "[0] is not a time and a value", id="no value"),
        pytest.param('{"status": "success", "data": {"resultType": "vector", "result": [{"value": [0, "1"]}]}}',
                     "series 0 has no values; give the JSON of query_range", id="query, not query_range"),
        pytest.param(range_data([[1700158546000 + 60000 * step, "5"] for step in range(3)]), "series 0: the time of "
                     '[1700158546000, "5"] is not in seconds; divide milliseconds by 1,000', id="milliseconds"),
        pytest.param(range_data([[-99999999999 + 60 * step, "5"] for step in range(3)]), "series 0: the time of "
                     '[-99999999999, "5"] is before 1970; write seconds since 1970', id="before all dates"),
        pytest.param(range_data([[10**400, "5"]]), "is not a time and a value; give", id="no float"),
        pytest.param('{"status": "error", "error": "parse error"}', "is an error of Prometheus: parse error",
                     id="error"),
        pytest.param('{"a": 1}', "is not range data of Prometheus", id="other JSON"),
    ],
)
def test_bad_range_data_are_refused(written: Any, text: str, words: str) -> None:
    with pytest.raises(InputError) as refused:
        read_trace(written(text, "range.json"))
    assert f"range.json: {words}" in str(refused.value) or words in str(refused.value)


def dispersion(arrivals: list[float]) -> float:
    """Variance over mean of the counts of a second; 1 for a Poisson process."""
    counts = Counter(map(int, arrivals))
    values = [counts[second] for second in range(1, int(arrivals[-1]))]
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / len(values) / mean


def test_scaling_multiplies_requests_and_leaves_them_as_independent_as_they_were() -> None:
    draw = random.Random(3)
    once = list(accumulate(draw.expovariate(10.0) for _ in range(6000)))
    five = list(scaled(once, 5.0, seed=1))
    assert len(five) == 5 * len(once)
    assert five == sorted(five)
    assert five[-1] == pytest.approx(once[-1] - once[0], abs=5.0)
    assert dispersion(once) == pytest.approx(1.0, abs=0.25)
    # Copies beside their originals would have 5.
    assert dispersion(five) < 2.2


def test_scaling_keeps_a_bursts_edges() -> None:
    base = [100.0 + number / 50 for number in range(500)] + [1000.0 + number / 50 for number in range(500)]
    made = [came + 100.0 for came in scaled(base, 3.0, seed=1)]
    assert not [came for came in made if came < 99.9 or 110.1 < came < 999.9 or came > 1010.1]


def test_scaling_by_a_fraction_and_by_one() -> None:
    base = [float(number) for number in range(10_000)]
    assert len(scaled(base, 0.25, seed=1)) == pytest.approx(2500, rel=0.1)
    assert len(scaled(base, 1.5, seed=1)) == pytest.approx(15_000, rel=0.05)
    assert scaled(base, 1.0, seed=1) == base
    assert scaled(base, 2.0, seed=1) == scaled(base, 2.0, seed=1) != scaled(base, 2.0, seed=2)
    with pytest.raises(InputError, match="--rate-scale: got -1; write a number above 0"):
        scaled(base, -1.0, seed=1)
    with pytest.raises(InputError, match="leaves no request of 1"):
        scaled([0.0], 1e-9, seed=1)


def test_between_measured_batches_lie_straight_lines() -> None:
    assert of_points({1: 0.01, 2: 0.012, 8: 0.024}, 8, "x") == pytest.approx(
        (0.0, 0.01, 0.012, 0.014, 0.016, 0.018, 0.02, 0.022, 0.024))
    # Five per cent less is noise, and is made level.
    assert of_points({1: 0.0100, 2: 0.0097}, 2, "x") == (0.0, 0.01, 0.01)


@pytest.mark.parametrize(
    ("points", "words"),
    [
        pytest.param({}, "curve: has no batch; give at least batch 1", id="empty"),
        pytest.param({2: 0.01, 8: 0.02}, "curve: misses batch 1, the smallest is 2; measure one request alone",
                     id="no 1"),
        pytest.param({1: 0.01, 4: 0.02}, "curve: misses batch 8, the largest measured is 4; measure it, or write "
                     "--max-batch 4", id="misses the largest"),
        pytest.param({1: 0.01, 2: 0.02, 8: 0.015}, "curve: is not monotone: batch 8 takes 15 ms, less than the 20 "
                     "ms of batch 2", id="not monotone"),
        pytest.param({1: 0.0, 8: 0.015}, "curve: batch 1 takes 0 ms", id="no time"),
    ],
)
def test_a_bad_curve_is_refused(points: dict[int, float], words: str) -> None:
    with pytest.raises(InputError) as refused:
        of_points(points, 8, "curve")
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("service_ms", "capacity", "max_batch", "batches"),
    [
        pytest.param(50.0, 20.0, None, 1, id="one by one"),
        pytest.param(10.0, 20.0, None, 1, id="slower than its latency"),
        pytest.param(50.0, None, None, 1, id="latency only"),
        pytest.param(None, 20.0, None, 1, id="capacity only"),
        pytest.param(None, None, None, 1, id="neither"),
        pytest.param(20.0, 400.0, None, 8, id="batches"),
        pytest.param(20.0, 410.0, None, 9, id="batches rounded up"),
        pytest.param(20.0, 400.0, 32, 32, id="a straight line to the largest batch"),
    ],
)
def test_two_figures_make_a_curve_that_has_both(
    service_ms: float | None, capacity: float | None, max_batch: int | None, batches: int
) -> None:
    service = of_figures(service_ms, capacity, max_batch)
    assert service.max_batch == batches
    assert service.capacity == pytest.approx(capacity or 20.0)
    assert service.seconds[1] * 1e3 == pytest.approx(service_ms or 50.0)
    assert list(service.seconds) == sorted(service.seconds)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((0.0, 20.0), "--service-ms: got 0; write a number above 0"),
        ((20.0, -1.0), "--capacity-rps: got -1; write a number above 0"),
        ((20.0, 400.0, 4), "--max-batch 4: 400 requests/s of 20 ms each need batches of at least 8"),
    ],
)
def test_bad_figures_are_refused(given: tuple[Any, ...], words: str) -> None:
    with pytest.raises(InputError) as refused:
        of_figures(*given)
    assert words in str(refused.value)


def report(**changes: Any) -> dict[str, Any]:
    curve = [{"batch": batch, "p50_ms": 5.0 + batch, "throughput": 1.0} for batch in (1, 2, 4, 8)]
    return {
        "sweep": {"service_curve": curve},
        "serving": {"max_batch_size": 8, "preferred_batch_sizes": [4], "max_queue_delay_us": 2000, "instance_count": 2},
        "objective": {"latency_ms": 40.0, "latency_percentile": 95.0},
        "engine": {"throughput_at_objective": 900.0, "load_seconds": 12.5},
        **changes,
    }


def test_a_build_report_tells_the_whole_service(written: Any) -> None:
    found = read_report(written(json.dumps(report()), "build-report.json"))
    assert found.service.seconds[1:] == pytest.approx((0.006, 0.007, 0.008, 0.009, 0.010, 0.011, 0.012, 0.013))
    assert (found.service.instances, found.service.preferred, found.service.queue_delay) == (2, (4,), 0.002)
    assert (found.throughput, found.slo_ms, found.percentile, found.load_seconds) == (900.0, 40.0, 95.0, 12.5)
    assert found.service.capacity == pytest.approx(2 * 8 / 0.013)


def test_an_instance_is_taken_for_as_long_as_triton_says_and_a_client_sees_more(written: Any) -> None:
    curve = [{"batch": batch, "p50_ms": 5.0 + batch, "compute_ms": 4.0 + batch} for batch in (1, 2)]
    sweep: dict[str, Any] = {"service_curve": curve, "alone": {"p50_ms": 9.0, "compute_ms": 5.5, "transport_ms": 2.0}}
    found = read_report(written(json.dumps(report(sweep=sweep)), "build-report.json"), 2).service
    assert (*found.seconds[1:], found.wake, found.transport) == pytest.approx((0.005, 0.006, 0.0005, 0.002))
    sweep["alone"]["compute_ms"] = 4.5
    found = read_report(written(json.dumps(report(sweep=sweep)), "build-report.json"), 2).service
    assert (found.wake, found.transport) == pytest.approx((0.0, 0.002))
    curve[1]["compute_ms"] = 4.0  # a disturbance of the batch before it
    found = read_report(written(json.dumps(report(sweep=sweep)), "build-report.json"), 2).service
    assert found.seconds[1:] == pytest.approx((0.005, 0.005))
    curve[1]["p50_ms"] = 3.0  # and one of its clients: what they saw of larger batches counts for nothing
    found = read_report(written(json.dumps(report(sweep=sweep)), "build-report.json"), 2).service
    assert found.seconds[1:] == pytest.approx((0.005, 0.005))
    curve[1] |= {"p50_ms": 7.0, "compute_ms": 6.0}
    del sweep["alone"]
    found = read_report(written(json.dumps(report(sweep=sweep)), "build-report.json"), 2).service
    assert (found.wake, found.transport) == pytest.approx((0.0, 0.001))
    del curve[1]["compute_ms"]
    found = read_report(written(json.dumps(report(sweep=sweep)), "build-report.json"), 2).service
    assert (*found.seconds[1:], found.wake, found.transport) == pytest.approx((0.006, 0.007, 0.0, 0.0))


def test_a_request_alone_that_triton_never_counted_says_nothing(written: Any) -> None:
    curve = [{"batch": 1, "p50_ms": 6.0, "compute_ms": 4.0}]
    for alone in ({"compute_ms": 0.0, "transport_ms": 9.0}, None):
        told = report(sweep={"service_curve": curve, "alone": alone}, serving={"max_batch_size": 1})
        found = read_report(written(json.dumps(told), "build-report.json")).service
        assert (found.wake, found.transport) == pytest.approx((0.0, 0.002))


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["compute_ms", "transport_ms"])
@pytest.mark.parametrize("where", ["alone", "service_curve[0]"])
def test_times_by_triton_that_cannot_be_are_refused(written: Any, where: str, name: str, value: float) -> None:
    point, alone = {"batch": 1, "p50_ms": 5.0, "compute_ms": 4.0}, {"compute_ms": 4.5, "transport_ms": 1.0}
    (alone if where == "alone" else point)[name] = value
    told = report(sweep={"service_curve": [point], "alone": alone}, serving={"max_batch_size": 1})
    with pytest.raises(InputError) as refused:
        read_report(written(json.dumps(told), "build-report.json"))
    assert f"sweep.{where}.{name}: got {value:g}; write milliseconds of 0 or more" in str(refused.value)


def test_a_model_without_a_batch_dimension_is_served_one_by_one(written: Any) -> None:
    alone = report(serving={"max_batch_size": 0}, objective={"latency_ms": 0.0}, engine={})
    found = read_report(written(json.dumps(alone), "build-report.json"))
    assert (found.service.max_batch, found.slo_ms, found.throughput, found.load_seconds) == (1, None, None, None)


def test_a_curve_that_ends_early_can_be_used_up_to_there(written: Any) -> None:
    path = written(json.dumps(report(serving={"max_batch_size": 32})), "build-report.json")
    with pytest.raises(InputError, match=r"service_curve: misses batch 32, .* is 8; .*--max-batch 8"):
        read_report(path)
    assert read_report(path, 8).service.max_batch == 8


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "build-report.json:1: is not JSON"),
        ("[]", "build-report.json: is not a build report"),
        (json.dumps(report(sweep=None)), "build-report.json: sweep.service_curve is missing or empty"),
        (json.dumps(report(sweep={"service_curve": [{"batch": 1}]})),
         'sweep.service_curve[0]: got {"batch": 1}; write'),
        (json.dumps(report(sweep={"service_curve": [{"batch": 1, "p50_ms": "5"}]})),
         '[0].p50_ms: got "5"; write a number'),
        (json.dumps(report(sweep={"service_curve": [{"batch": 1, "p50_ms": 5}] * 2})),
         "[1].batch: 1 is repeated"),
        (json.dumps(report(sweep={"service_curve": [{"batch": 1, "p50_ms": 5, "compute_ms": "4"}]})),
         '[0].compute_ms: got "4"; write a number'),
        (json.dumps(report(sweep={"service_curve": [{"batch": 1, "p50_ms": 5, "compute_ms": 4}],
                                  "alone": {"compute_ms": 5}}, serving={"max_batch_size": 1})),
         "sweep.alone.transport_ms: got null; write a number"),
        (json.dumps(report(serving={"instance_count": 0})), "serving.instance_count: got 0; write a whole number"),
        (json.dumps(report(serving={"max_batch_size": 8, "preferred_batch_sizes": [16]})),
         "preferred_batch_sizes: 16 is above max_batch_size 8"),
    ],
)
def test_a_bad_report_is_refused(written: Any, text: str, words: str) -> None:
    with pytest.raises(InputError) as refused:
        read_report(written(text, "build-report.json"))
    assert words in str(refused.value)
