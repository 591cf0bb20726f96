"""``report.html`` of a language model, in tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from enginewright_builder import contract
from enginewright_builder.contract import DRAFT_FOLDER, REPORT_FILE, REPORT_PAGE, with_draft
from enginewright_builder.generate.shipping import described
from enginewright_builder.generate.sweep import Aim, Point, shown, to_show
from enginewright_builder.generate.trial import Trial
from enginewright_builder.report import charts, vega, words
from enginewright_builder.report.generation import GenerateReport
from enginewright_builder.report.history import Spec
from enginewright_builder.report.page import drawing, template


def write_generate_report(report: GenerateReport, directory: Path) -> None:
    """Writes ``build-report.json`` and the self-contained ``report.html`` into ``directory``. Raises ``ValueError``
    when a figure is not a finite number."""
    (directory / REPORT_FILE).write_text(contract.dumps(report, indent=2) + "\n", encoding="utf-8")
    (directory / REPORT_PAGE).write_text(render(report), encoding="utf-8")


def render(report: GenerateReport) -> str:
    """The whole page, every value escaped."""
    return template("generation.html.jinja").render(
        report=report, serving=report.serving, headline=headline(report),
        objective=objective(report.serving.aim, report.serving.load),
        verdict=words.VERDICTS, charts={"pareto": pareto(report)}, vega=vega.script(), drawing=drawing(),
        cost=cost(report.serving.load), words=with_draft(report.serving.words, DRAFT_FOLDER),
        guessed=any(one.speculated for trial in report.trials for one in trial.points))


def headline(report: GenerateReport) -> str:
    """One sentence: what ships and why."""
    serving, first = report.serving, report.trials[0]
    lost = f"of its next tokens {serving.gate.disagreement.value:.2%} differ from the unquantised model's"
    if serving.name == first.name:
        return f"{serving.name} ships as vLLM serves it by default: nothing that keeps its accuracy serves better."
    return (f"{serving.name} ships, with {words.ratio(report.gain)} the {measure(serving.aim)} of {first.name} by "
            f"vLLM's defaults; {lost}.")


def measure(aim: Aim) -> str:
    return "requests within the objective" if aim.asked else "tokens a second"


def objective(aim: Aim, load: Point) -> str:
    """What was asked for, and whether the load that ships kept it when it was put on once more."""
    asked = [f"the first token within {aim.objective.ttft_ms:g} ms" if aim.objective.ttft_ms else "",
             f"each further one within {aim.objective.tpot_ms:g} ms" if aim.objective.tpot_ms else ""]
    if not aim.asked:
        return "No objective was given: what is compared is tokens a second."
    return (f"Objective, for {aim.percentile:g} % of the requests: {' and '.join(filter(None, asked))}. "
            f"{_kept(aim, load)}")


def _kept(aim: Aim, load: Point) -> str:
    once_more = f"when the load was put on once more, {load.figures.late:,} of {load.again:,} requests missed it"
    if shown(load, aim):
        return f"It is met: {once_more}."
    if needed := to_show(load, aim):
        return (f"Whether it is met is not known: {once_more if load.again else 'no time was left for new requests'}, "
                f"and it takes {needed:,} to say so.")
    return f"It is missed: {once_more if load.again else 'no load kept it'}."


def cost(load: Point) -> str:
    """Empty where no token came."""
    rate = load.figures.output_rate
    return f"{1e6 / rate / 3600:.2f} hours of this device for a million tokens" if rate else ""


def pareto(report: GenerateReport) -> Spec:
    """Time until the first token against tokens a second, every load of what keeps its accuracy."""
    seen = list(_seen(report))
    front = _frontier([point for _, point in seen])
    shipped = report.serving
    rows = [{"latency": point.figures.ttft_ms.p50, "throughput": point.figures.output_rate,
             "label": f"{trial.name}: {described(point, report.serving.aim)}", "beaten": point not in front,
             "kind": "chosen" if trial.name == shipped.name and point == shipped.load else
                     "frontier" if point in front else "other"} for trial, point in seen]
    return {
        "description": "Tokens a second against the time until the first, of every load; the chosen one has a ring.",
        "width": "container", "height": charts.HEIGHT, "data": {"values": rows},
        "encoding": {
            "x": {"field": "latency", "type": "quantitative", "scale": {"domainMin": 0},
                  "title": "median time until the first token, ms"},
            "y": {"field": "throughput", "type": "quantitative", "scale": {"domainMin": 0},
                  "title": "tokens a second"},
        },
        "layer": charts.marks({str(row["kind"]) for row in rows}),
    }


def _seen(report: GenerateReport) -> Iterator[tuple[Trial, Point]]:
    for trial in report.trials:
        if trial.judgement is None or trial.judgement.passed:
            yield from ((trial, point) for point in trial.points)


def _frontier(points: list[Point]) -> list[Any]:
    best, front = -math.inf, []
    for point in sorted(points, key=lambda one: (one.figures.ttft_ms.p50, -one.figures.output_rate)):
        if point.figures.output_rate > best:
            front.append(point)
            best = point.figures.output_rate
    return front
