"""The evidence of a build: ``build-report.json`` for programs, ``report.html`` for people."""

from __future__ import annotations

from pathlib import Path

from enginewright_builder import contract
from enginewright_builder.contract import REPORT_FILE, REPORT_PAGE
from enginewright_builder.report.model import AccuracyEvidence, BuildReport, Hardware, Reference
from enginewright_builder.report.page import render

__all__ = ["AccuracyEvidence", "BuildReport", "Hardware", "Reference", "read_report", "render",
           "write_report"]


def write_report(report: BuildReport, directory: Path) -> None:
    """Writes ``build-report.json`` and the self-contained ``report.html`` into ``directory``.

    Raises ``ValueError`` when a figure is not a finite number: such a report proves nothing.
    """
    (directory / REPORT_FILE).write_text(contract.dumps(report, indent=2) + "\n", encoding="utf-8")
    (directory / REPORT_PAGE).write_text(render(report), encoding="utf-8")


def read_report(directory: Path) -> BuildReport:
    """Raises :class:`enginewright_builder.contract.ContractError`."""
    return contract.load(BuildReport, (directory / REPORT_FILE).read_text(encoding="utf-8"))
