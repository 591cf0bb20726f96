"""Progress and outcome for people at a terminal. Names, errors and reasons are words of others, so nothing is read as
markup, and :class:`Text` has the styles."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.highlighter import ReprHighlighter
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from enginewright_builder.contract import (
    CandidateSummary,
    EngineSummary,
    ErrorReport,
    GenerateSummary,
    Outcome,
    Progress,
    printable,
)

_COLOURS = {"Shipped": "green", "AccuracyRefused": "yellow", "Failed": "red", "Offered": "cyan", "Fallback": "cyan"}


class Terminal:
    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, markup=False, emoji=False)
        self._bar = Bar(TextColumn("{task.fields[step]:<12}", style="bold", markup=False), BarColumn(bar_width=30),
                        TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn(),
                        TextColumn("{task.description}", markup=False), console=self._console)
        self._task = self._bar.add_task("", total=1.0, step="")
        self._bar.start()

    def progress(self, line: Progress) -> None:
        self._bar.update(self._task, completed=line.fraction, description=printable(line.detail),
                         step=printable(line.step))

    def outcome(self, outcome: Outcome) -> None:
        self._bar.stop()
        if outcome.candidates:
            self._console.print((_token_table if outcome.generate else _table)(outcome.candidates))
            for one in outcome.candidates:
                self._console.print(Text(printable(f"  {one.name or one.precision}: {one.reason}"), style="dim"))
        if outcome.error:
            self._console.print(ReprHighlighter()(_error(outcome.error)))
        if outcome.engine:
            self._console.print(ReprHighlighter()(_engine(outcome.engine, _how(outcome))))
        if outcome.generate:
            self._console.print(ReprHighlighter()(_language_model(outcome.generate, _how(outcome))))


def _table(candidates: tuple[CandidateSummary, ...]) -> Table:
    task = next((one.task for one in candidates if one.task), None)
    table = Table("candidate", "verdict", "p50 ms", "p99 ms", "inferences/s",
                  "agreement" if task else "accuracy",
                  *([printable(f"{task.metric} (source {task.source:.4f})")] if task else []), "MB", "built s",
                  "compared s", box=None)
    for one in candidates:
        style = _COLOURS.get(one.verdict, "")
        table.add_row(printable(one.name or f"{one.backend} {one.precision}"), one.verdict,
                      _number(one.p50_ms, 2), _number(one.p99_ms, 2), _number(one.throughput, 1),
                      _number(one.accuracy, 4), *([_number(one.task.value if one.task else None, 4)] if task else []),
                      _number(one.size_bytes / 1e6 if one.size_bytes else None, 1),
                      _number(one.build_seconds, 1), _number(one.gate_seconds, 1),
                      style=style)
    return table


def _token_table(candidates: tuple[CandidateSummary, ...]) -> Table:
    table = Table("candidate", "verdict", "in flight", "first token p99 ms", "each token p99 ms", "tokens/s",
                  "agreement", "started s", "compared s", box=None)
    for one in candidates:
        load = one.tokens
        measured = (load.concurrency, load.ttft_p99_ms, load.tpot_p99_ms, load.output_rate) if load else (None,) * 4
        table.add_row(printable(one.name), one.verdict,
                      *(_number(figure, digits) for figure, digits in zip(measured, (0, 1, 1, 1), strict=True)),
                      _number(one.accuracy, 4), _number(one.build_seconds, 1), _number(one.gate_seconds, 1),
                      style=_COLOURS.get(one.verdict, ""))
    return table


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _styled(*parts: str | tuple[str, str]) -> Text:
    """Each a text, or one with its style."""
    return Text.assemble(*(printable(one) if isinstance(one, str) else (printable(one[0]), one[1]) for one in parts))


def _error(error: ErrorReport) -> Text:
    place = f"\n  at {error.field}" + (f": {error.value}" if error.value else "") if error.field else ""
    remedy = ("\n  ", ("do this:", "green"), f" {error.remedy}") if error.remedy else ()
    return _styled((error.reason, "bold red"), f": {error.message}", place, *remedy)


def _how(outcome: Outcome) -> str:
    return "found in the store" if outcome.cache_hit else f"built in {outcome.build_seconds:.0f} s"


def _language_model(model: GenerateSummary, how: str) -> Text:
    load = model.tokens
    return _styled(
        (model.name, "bold green"),
        f" on {model.server} {model.server_version}, {how}: {model.gain:.2f}× what the "
        f"unquantised model serves by default, {load.output_rate:.1f} tokens/s at p99 {load.ttft_p99_ms:.0f} ms to "
        f"the first token and {load.tpot_p99_ms:.1f} ms for each after it, {load.concurrency} requests in flight; "
        f"agreement ≥ {model.accuracy_low:.4f} on {model.prompts} prompts, noise floor {model.noise_floor:.4f}")


def _engine(engine: EngineSummary, how: str) -> Text:
    return _styled(
        (f"{engine.backend} {engine.precision}", "bold green"),
        f", {how}: {engine.speedup:.2f}× the source's throughput, "
        f"{engine.throughput:.1f} inferences/s at p99 {engine.p99_ms:.1f} ms as served; "
        f"accuracy ≥ {engine.accuracy_low:.4f} on {engine.evaluation} data{_on_labels(engine)}")


def _on_labels(engine: EngineSummary) -> str:
    task, groups = engine.task, engine.groups
    labels = f"; {task.metric} on the labels {task.value:.4f}, the source's {task.source:.4f}" if task else ""
    if groups is None:
        return labels
    small = f", {groups.too_small_count} too small" if groups.too_small_count else ""
    return f"{labels}; held in {groups.judged} groups by {groups.by}{small}"
