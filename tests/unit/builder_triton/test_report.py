from __future__ import annotations

import dataclasses
import html
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from enginewright_builder.contract import Bound, GroupFigure, GroupsSummary, MemoryFigures, TaskFigure
from enginewright_builder.measure.energy import DeviceUse
from enginewright_builder.measure.profile import EngineProfile, LayerTime
from enginewright_builder.measure.roofline import PrecisionGain
from enginewright_builder.report import BuildReport, charts, read_report, vega, words, write_report
from enginewright_builder.report.page import render
from enginewright_builder.report.performance import Joining, assess
from enginewright_builder.sweep import Point

VOID = {"meta", "br", "line", "circle", "path"}


def read(report: BuildReport) -> str:
    """The page as text, without the library that draws it."""
    return " ".join(html.unescape(render(report).replace(vega.script(), "")).split())


class _Balance(HTMLParser):
    """Every element that opens also closes, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.external: list[str] = []
        self.within: set[str] = set()
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = [value or "" for name, value in attrs if name in {"src", "href", "srcset", "data"}]
        self.external += [value for value in found if not value.startswith("#")]
        self.within |= {value[1:] for value in found if value.startswith("#")}
        self.places |= {value or "" for name, value in attrs if name == "id"}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def test_written_report_reads_back_equal(report: BuildReport, tmp_path: Path) -> None:
    write_report(report, tmp_path)
    assert read_report(tmp_path) == report


def test_page_is_well_formed_and_needs_no_network(report: BuildReport) -> None:
    page = render(report)
    parser = _Balance()
    parser.feed(page)
    assert parser.open == []
    assert parser.external == []
    assert parser.within
    assert parser.within <= parser.places
    ours = page.replace(vega.script(), "")
    assert not re.search(r"url\(|@import|fetch\(|https?://", ours)


@pytest.mark.parametrize("change", [
    {}, {"sweep": None}, {"performance": None}, {"sweep": None, "performance": None},
], ids=["whole", "no sweep", "no performance", "neither"])
def test_every_figure_links_to_how_it_was_measured(change: dict[str, None], report: BuildReport) -> None:
    parser = _Balance()
    parser.feed(render(dataclasses.replace(report, **change)))  # type: ignore[arg-type]
    always = {"how-speedup", "how-size", "how-accuracy"}
    assert always <= parser.within <= parser.places


def test_page_says_what_ships_and_why_the_others_lost(report: BuildReport) -> None:
    page = render(report)
    for text in (
        "ONNX Runtime INT8 ships",
        "2.35×",
        "needs an NVIDIA GPU",
        "cosine at least 0.9570",
        report.source_digest,
        report.fingerprint,
        report.command,
        "max_batch_size: 32",
        "The objective of p99 ≤ 20 ms is met",
    ):
        assert text in page, text


def test_page_escapes_what_comes_from_a_model(report: BuildReport) -> None:
    page = render(dataclasses.replace(report, model_name="<script>alert(1)</script>"))
    assert "<script>alert" not in page


def test_what_a_model_is_called_cannot_end_the_data(report: BuildReport) -> None:
    candidate = dataclasses.replace(report.candidates[0], name="</script><b>")
    page = render(dataclasses.replace(report, candidates=(candidate,)))
    data = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page, re.DOTALL)
    assert data
    assert set(json.loads(data[1])) == {"pareto", "layers", "replicas", "queued", "rate"}


def test_report_without_sweep_or_reference_figures(report: BuildReport) -> None:
    bare = dataclasses.replace(
        report, sweep=None, reference=dataclasses.replace(report.reference, p50_ms=None, p99_ms=None, throughput=None)
    )
    assert set(charts.specs(bare)) == {"replicas", "queued", "rate"}
    assert 'data-chart="pareto"' not in render(bare)


def test_an_offered_engine_is_not_said_to_ship(report: BuildReport) -> None:
    offered = dataclasses.replace(report, candidates=(dataclasses.replace(report.candidates[1], verdict="Offered"),))
    assert "offered, not served" in words.headline(offered)
    assert " ships" not in words.headline(offered)


def test_engines_that_ship_together_are_all_named(report: BuildReport) -> None:
    tuned = dataclasses.replace(report.candidates[0], verdict="Shipped", serves=(1,), name="tensorrt fp16 @1")
    wide = dataclasses.replace(tuned, serves=(8, 32), name="torch fp16")
    page = render(dataclasses.replace(report, candidates=(tuned, wide)))
    assert "TensorRT FP16 @1 and PyTorch FP16 ship together" in page
    assert '<td class="engine">TensorRT FP16 @1<' in page


def test_a_figure_that_is_no_number_is_refused(report: BuildReport, tmp_path: Path) -> None:
    broken = dataclasses.replace(report, engine=dataclasses.replace(report.engine, p99_ms=float("nan")))
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_report(broken, tmp_path)


def test_every_point_is_drawn_and_one_is_chosen(report: BuildReport) -> None:
    assert report.sweep is not None
    rows = charts.pareto(report)["data"]["values"]
    assert len(rows) == len(report.sweep.points) + 1, "and plain serving"
    assert [row["kind"] for row in rows].count("chosen") == 1
    (chosen,) = (row for row in rows if row["kind"] == "chosen")
    assert (chosen["latency"], chosen["throughput"]) == (18.2, 142.4)


def test_the_line_leaves_out_a_chosen_point_that_another_beats(
    report: BuildReport, make_point: Callable[..., Point]
) -> None:
    assert report.sweep is not None
    better = make_point(instances=4, throughput=150.0, latency=18.0)
    sweep = dataclasses.replace(report.sweep, points=(*report.sweep.points, better))
    rows = charts.pareto(dataclasses.replace(report, sweep=sweep))["data"]["values"]
    line = {row["latency"] for row in rows if row.get("beaten") is False}
    assert line == {point.objective_ms for point in charts.frontier(sweep.points)}
    (chosen,) = (row for row in rows if row["kind"] == "chosen")
    assert chosen["latency"] not in line


def test_frontier_holds_exactly_the_points_that_none_beats(report: BuildReport) -> None:
    assert report.sweep is not None
    points = report.sweep.points
    expected = {
        point.objective_ms
        for point in points
        if not any(
            other.objective_ms <= point.objective_ms and other.throughput >= point.throughput and other != point
            for other in points
        )
    }
    assert {point.objective_ms for point in charts.frontier(points)} == expected


def test_what_is_done_before_and_after_the_model_is_a_layer_where_it_was_measured(report: BuildReport) -> None:
    assert report.sweep is not None
    assert report.performance is not None
    assert report.performance.before is not None
    page = read(report)
    assert "Preprocessing" not in page
    assert "how-layers" in page
    layers = dataclasses.replace(report.sweep.best.layers, preprocess_ms=2.0)
    best = dataclasses.replace(report.sweep.best, layers=layers)
    told = "Model compute has the postprocessing in it."
    found = dataclasses.replace(report, sweep=dataclasses.replace(report.sweep, best=best),
                                performance=dataclasses.replace(report.performance, not_apart=(told,)))
    bar, = (bar for bar in charts.layer_bars(found) if bar.layer == "preprocess")
    assert (bar.label, bar.value, bar.before) == ("Preprocessing", "2.00 ms", "")
    page = read(found)
    assert told in page
    assert "Preprocessing and postprocessing are taken out of compute" in page
    spec = charts.stacks(found)
    assert [row["layer"] for row in spec["data"]["values"]].count("Preprocessing") == 1
    assert "Preprocessing" in spec["encoding"]["color"]["scale"]["domain"]
    assert "Postprocessing" not in spec["encoding"]["color"]["scale"]["domain"]


def test_layers_are_sorted_and_add_up(report: BuildReport) -> None:
    bars = charts.layer_bars(report)
    assert bars[0].label == "Model compute"
    assert bars[0].width == 100.0
    assert bars[-1].cumulative == "100%"
    assert all(bar.before and bar.advice.endswith(".") for bar in bars)


def test_before_and_after_are_stacked_on_one_scale(report: BuildReport) -> None:
    assert report.sweep is not None
    assert report.performance is not None
    assert report.performance.before is not None
    rows = charts.stacks(report)["data"]["values"]
    for serving, point in (("Before", report.performance.before.point), ("Shipped", report.sweep.best)):
        parts = [row["milliseconds"] for row in rows if row["serving"] == serving]
        assert sum(parts) == pytest.approx(point.layers.total_ms)
        assert len(parts) == 4


@pytest.mark.parametrize(("latency", "drawn"), [(40.0, 1), (262.0, 1), (263.0, 0), (1e5, 0)])
def test_plain_serving_is_a_point_where_it_squeezes_no_others(report: BuildReport, latency: float, drawn: int) -> None:
    assert report.performance is not None
    assert report.performance.before is not None
    point = dataclasses.replace(report.performance.before.point, objective_ms=latency)
    before = dataclasses.replace(report.performance.before, point=point)
    again = dataclasses.replace(report, performance=dataclasses.replace(report.performance, before=before))
    rows = charts.pareto(again)["data"]["values"]
    assert [row["kind"] for row in rows].count("before") == drawn
    assert read(again).count("Ring: ONNX Runtime FP32") == drawn


@pytest.mark.parametrize(("objective", "drawn"), [(0.0, False), (20.0, True), (262.0, True), (1000.0, False)])
def test_the_objective_is_drawn_where_it_fits(report: BuildReport, objective: float, drawn: bool) -> None:
    again = dataclasses.replace(report, objective=dataclasses.replace(report.objective, latency_ms=objective))
    lines = [layer for layer in charts.pareto(again)["layer"] if layer["mark"]["type"] == "rule"]
    assert bool(lines) is drawn


def test_page_says_what_limits_the_engine_and_what_comes_next(report: BuildReport) -> None:
    page = read(report)
    for text in (
        "The next optimisation is the engine: it runs at 42% of what the roofline allows",
        "compute-bound, arithmetic is the limit",
        "One inference is 1.40 GFLOP",
        "INT8 9",
        "ONNX Runtime INT8 buys latency: 2.24× as fast as ONNX Runtime FP32 at batch 8, 25% of the size",
        "A million inferences take 1.95 hours of one replica's device, at the 142/s",
        "Not measured: this device's energy counter cannot be read here.",
        "ONNX Runtime FP32 on Triton as it comes (one instance, no dynamic batching) takes 32.0 ms under the same load",
        "Requests wait for an instance that is busy",
    ):
        assert text in page, text


def test_page_without_measurements_of_performance_says_so(report: BuildReport) -> None:
    assert report.performance is not None
    assert report.sweep is not None
    bare = assess(report.sweep, (), (), "python", notes=("The budget was spent.",))
    page = read(dataclasses.replace(report, performance=bare))
    assert "The roofline was not measured." in page
    assert "The budget was spent." in page
    assert "Before" not in page
    older = render(dataclasses.replace(report, performance=None))
    assert "What limits it" not in older
    assert "Where a request" in older


def test_device_use_is_shown_where_it_was_measured(report: BuildReport) -> None:
    assert report.sweep is not None
    use = DeviceUse(meter="nvml", seconds=5.0, joules=2000.0, idle_watts=120.0, utilisation=0.71, memory_bytes=3 << 30)
    best = dataclasses.replace(report.sweep.best, use=use)
    sweep = dataclasses.replace(report.sweep, best=best, points=(best,))
    measured = dataclasses.replace(report, sweep=sweep, performance=assess(sweep, (), (), "tensorrt"))
    page = read(measured)
    for text in (
        "71% of the time",
        "0.51 inferences a joule above idle",
        "400 W drawn under load, 120 W idle",
        "3.00 GiB",
    ):
        assert text in page, text


@pytest.mark.parametrize(
    ("bound", "attained", "text"),
    [
        ("compute", 0.42, "It reaches 42% of what this device's roofline allows: compute-bound"),
        ("bandwidth", 1.7, "faster than main memory alone would allow, since its data stay in caches: bandwidth-bound"),
        ("compute", 1.2, "faster than the largest product that was measured here"),
        ("", None, ""),
    ],
)
def test_roofline_in_words(report: BuildReport, bound: Bound, attained: float | None, text: str) -> None:
    assert report.performance is not None
    found = words.roofline_sentence(dataclasses.replace(report.performance, bound=bound, attained=attained))
    assert text in found
    assert bool(found) == bool(bound)


TASK = TaskFigure(metric="accuracy", source=0.9312, value=0.9287, loss=0.0025, loss_high=0.0071, max_loss=0.01)


def test_labels_and_groups_stand_on_the_page(report: BuildReport) -> None:
    assert "On your labels" not in read(report)
    groups = (GroupFigure(group="de", samples=900, accuracy=0.999, accuracy_low=0.998, task=TASK),
              GroupFigure(group="<li>", samples=7, too_small=True))
    evidence = dataclasses.replace(
        report.accuracy, task=TASK, groups={"onnxruntime int8": groups},
        summary=GroupsSummary(by="country", judged=1, too_small=("<li>",), too_small_count=1, worst="de"))
    candidates = tuple(dataclasses.replace(one, task=TASK if one.accuracy else None) for one in report.candidates)
    labelled = dataclasses.replace(report, accuracy=evidence, candidates=candidates)
    page = read(labelled)
    assert ("On the labels accuracy is 0.9287, and the source model's is 0.9312: it loses 0.25 points, and at most "
            "0.71 with 95 % confidence, where 1 are allowed.") in page
    assert "The gate held in each of 1 groups by country; it lost most in de. 1 had too few samples" in page
    assert "&lt;li&gt;" in render(labelled)
    assert page.count("0.9312") >= 2, "the source's own row has it"
    parser = _Balance()
    parser.feed(render(labelled))
    assert parser.open == []
    relative = dataclasses.replace(TASK, metric="rmse", source=2.0, value=2.01, loss=0.005, loss_high=0.009)
    errors = dataclasses.replace(labelled, accuracy=dataclasses.replace(evidence, task=relative))
    assert "it loses 0.50 %, and at most 0.90" in words.labels_sentence(errors)


def test_p999_is_told_or_how_many_requests_it_takes(report: BuildReport) -> None:
    assert report.sweep is not None
    assert "p99.9 is not known: it takes 1,000 requests, and 500 were measured" in read(report)
    best = dataclasses.replace(report.sweep.best, p999_ms=21.5, requests=4200)
    told = dataclasses.replace(report, sweep=dataclasses.replace(report.sweep, best=best))
    assert "p99.9 of the shipped point is 21.5 ms, of 4,200 requests." in read(told)


def test_gpu_utilisation_stands_beside_the_latency(report: BuildReport) -> None:
    assert "% busy" not in render(report)
    busy = dataclasses.replace(report.engine, gpu_utilisation=0.714)
    assert "GPU 71% busy" in render(dataclasses.replace(report, engine=busy))


def test_joined_lengths_are_told_with_what_they_bring(report: BuildReport) -> None:
    assert "Requests of different length" not in read(report)
    assert report.performance is not None
    joining = Joining(mask="attention_mask", shortest=3, median=24, longest=256, run_positions=37, padding=0.0421,
                      padding_to_longest=0.83, throughput=412, throughput_apart=120, throughput_to_longest=61.5,
                      mean_batch=24, mean_batch_apart=1.4, mean_batch_to_longest=32, concurrency=64)
    text = read(dataclasses.replace(report, performance=dataclasses.replace(report.performance, joining=joining)))
    assert ("Requests of 3 to 256 positions (median 24) run together: 412/s with 64 in flight. 4.2% of what was run "
            "was padding. Without that it is 120/s; where clients fill every request up to 256 it is 61.5/s, and 83.0% "
            "of what is run is padding.") in text
    assert "was padding" not in words.joining_sentence(dataclasses.replace(joining, padding=None))
    of_texts = words.joining_sentence(dataclasses.replace(joining, texts=True))
    assert "where the replica fills all texts that it runs at once up to the longest of them it is 61.5/s" in of_texts


def test_clocks_that_disagree_are_told(report: BuildReport) -> None:
    assert report.sweep is not None
    assert words.clocks_sentence(report) == ""
    layers = dataclasses.replace(report.sweep.best.layers, disagreement_ms=0.4)
    best = dataclasses.replace(report.sweep.best, layers=layers)
    assert "0.40 ms more" in words.clocks_sentence(
        dataclasses.replace(report, sweep=dataclasses.replace(report.sweep, best=best))
    )


@pytest.mark.parametrize(
    ("gain", "text"),
    [
        (("latency", 1.9, 0.5), "TensorRT FP16 @1+8 buys latency: 1.90× as fast as TensorRT FP32 at batch 8, 50% of"),
        (("memory", 0.98, 0.26), "buys only memory: 26% of the size, 0.98× the speed of TensorRT FP32 at batch 8."),
        (("nothing", 0.9, 1.0), "buys nothing: 0.90× the speed of TensorRT FP32 and 100% of the size at batch 8."),
    ],
)
def test_precisions_in_words(gain: tuple[str, float, float], text: str) -> None:
    buys, speedup, share = gain
    found = PrecisionGain(name="tensorrt fp16 @1+8", against="tensorrt fp32", batch=8, speedup=speedup,
                          size_share=share, buys=buys)
    assert text in words.precision_sentence(found)


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (words.operations, 2.5e9, "2.50 GFLOP"),
        (words.operations, 1.2e15, "1,200 TFLOP"),
        (words.operations, 12.0, "12 FLOP"),
        (words.size, None, "–"),
        (words.size, 512, "512 B"),
        (words.size, 23_200_000, "22.1 MiB"),
        (words.milliseconds, 0.6234, "0.62 ms"),
        (words.milliseconds, 18.24, "18.2 ms"),
        (words.per_second, 12345.6, "12,346/s"),
        (words.seconds, 130, "2.2 min"),
        (words.share, 0.99312, "0.9931"),
    ],
)
def test_numbers_in_words(function: object, value: object, text: str) -> None:
    assert function(value) == text  # type: ignore[operator]


def profile(**changes: object) -> EngineProfile:
    layers = [LayerTime(name=f"/layer.{number}/MatMul", operator="MatMul" if number else "", share=0.3 - number / 50,
                        microseconds=120.4 - 12.5 * number, calls=1 + number) for number in range(10)]
    found = EngineProfile(name="onnxruntime int8", library="onnxruntime", batch=8, runs=9, run_microseconds=4321.5,
                          layers=tuple(layers), layer_count=37, trace="profile/onnxruntime-int8.trace.json.gz")
    return dataclasses.replace(found, **changes)  # type: ignore[arg-type]


def test_the_slowest_layers_are_told_with_how_to_open_the_trace(report: BuildReport) -> None:
    page = read(dataclasses.replace(report, profiles=(profile(notes=("mind <this>",)),)))
    assert ("ONNX Runtime INT8 took 4,322 µs for a batch of 8, the median of 9 runs under ONNX Runtime's profiler, "
            "which slows them down. Its slowest 10 of 37 layers:") in page
    assert "/layer.3/MatMul" in page
    assert "24.0%" in page
    assert "120 µs" in page
    assert "7.9 µs" in page
    assert "profile/onnxruntime-int8.trace.json.gz" in page
    assert "Open it at ui.perfetto.dev" in page
    assert "mind <this>" in page
    assert 'id="how-profile"' in page


def test_why_there_is_no_profile(report: BuildReport) -> None:
    page = read(dataclasses.replace(report, profiles=(profile(layers=(), trace="", problem="it fell"),)))
    assert "ONNX Runtime INT8 has no profile: it fell." in page
    assert "perfetto" not in page
    assert "Slowest layers" not in read(report)


def test_a_page_with_a_profile_is_well_formed(report: BuildReport) -> None:
    page, parser = render(dataclasses.replace(report, profiles=(profile(), profile(layers=())))), _Balance()
    parser.feed(page)
    assert parser.open == []
    assert parser.within <= parser.places


MEMORY = MemoryFigures(seen="processes", empty_bytes=12 << 20, loaded_bytes=268 << 20, peak_bytes=326 << 20,
                       held_bytes=300 << 20, concurrency=4, cores=1.83)


@pytest.mark.parametrize(("memory", "there", "absent"), [
    (None, (), ("Server memory", "how-memory", "Processor")),
    (MEMORY, ("12.0 MiB without a model, 268 MiB with it loaded and warm, 326 MiB at the most with 4 requests in "
              "flight; of that the kernel could not take back 300 MiB.", "1.83 cores", "high-water mark"),
     ("Device memory",)),
    (dataclasses.replace(MEMORY, seen="container", concurrency=1), ("with 1 request in flight", "had had other"), ()),
    (dataclasses.replace(MEMORY, device_empty_bytes=1 << 29, device_loaded_bytes=3 << 29, device_peak_bytes=1 << 31,
                         pinned_bytes=4 << 20, pinned_pool_bytes=256 << 20),
     ("512 MiB without a model, 1.50 GiB with it loaded and warm, 2.00 GiB at the most under load, 4.00 MiB of 256 MiB "
      "of the pool of pinned host memory.",), ()),
    (dataclasses.replace(MEMORY, peak_bytes=0, device_peak_bytes=1 << 31), ("2.00 GiB at the most",),
     ("Server memory",)),
], ids=["an older builder", "a CPU", "told by the container", "a GPU", "the GPU's alone"])
def test_memory_from_the_start_to_the_load(
    memory: MemoryFigures | None, there: tuple[str, ...], absent: tuple[str, ...], report: BuildReport
) -> None:
    page = read(dataclasses.replace(report, engine=dataclasses.replace(report.engine, memory=memory)))
    assert [text for text in there if text not in page] == []
    assert [text for text in absent if text in page] == []
