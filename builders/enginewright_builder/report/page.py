"""``report.html``: one file, no network, light and dark, on a phone; on paper one sheet."""

from __future__ import annotations

from importlib import resources

import jinja2

from enginewright_builder.loadgen.logs import METRICS
from enginewright_builder.loadgen.result import MlperfResult
from enginewright_builder.report import charts, methods, profiles, trust, vega, words
from enginewright_builder.report.drift import drifts
from enginewright_builder.report.model import BuildReport

FORMATS = {name: getattr(words, name) for name in ("milliseconds", "microseconds", "per_second", "size", "ratio",
                                                   "share", "seconds", "significant")}


def render(report: BuildReport, mlperf: MlperfResult | None = None) -> str:
    """The whole page, with what LoadGen said of the engine afterwards, if it was asked. Every value is escaped, names
    and reasons come from users' models; the two scripts are our own and the library's."""
    fastest = max((candidate.throughput or 0.0 for candidate in report.candidates), default=0.0)
    return template("report.html.jinja").render(
        report=report, engine=report.engine, sweep=report.sweep, headline=words.headline(report),
        groups=tuple(report.accuracy.groups.items()),
        objective=words.objective_sentence(report), charts=charts.specs(report), bars=charts.layer_bars(report),
        checks=trust.checks(report), trust=trust, measured=methods.methods(report),
        vega=vega.script(), drawing=drawing(), drifts=drifts(report), profiles=profiles, words=words,
        performance=report.performance, mlperf=mlperf, mlperf_units={name: one[2] for name, one in METRICS.items()},
        verdict=words.verdict, engine_name=words.engine_name,
        metric=words.METRICS.get(report.accuracy.metric, report.accuracy.metric), offered=words.is_offered(report),
        fastest=max(fastest, report.reference.throughput or 0.0))


def template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(loader=jinja2.PackageLoader("enginewright_builder.report"), autoescape=True,
                                     undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(FORMATS)
    return environment.get_template(name)


def drawing() -> str:
    """The script that draws the charts of a page."""
    return resources.files("enginewright_builder.report").joinpath("templates/report.js").read_text(encoding="utf-8")
