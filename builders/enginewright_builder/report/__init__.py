"""The evidence of a build: ``build-report.json`` for programs, ``report.html`` for people."""

from __future__ import annotations

from pathlib import Path

from enginewright_builder.report.model import AccuracyEvidence, BuildReport, Hardware, Reference

__all__ = ["AccuracyEvidence", "BuildReport", "Hardware", "Reference", "write_report"]


def write_report(report: BuildReport, directory: Path) -> None:
    """Writes ``build-report.json`` and the self-contained ``report.html`` into ``directory``."""
    raise NotImplementedError
