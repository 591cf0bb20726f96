"""What a build has published in its store, as engines that this process can run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enginewright_builder.contract import MODEL_FOLDER, MODEL_REPOSITORY, CandidateSummary, load
from enginewright_builder.engines.base import Artifact, Rung, Runner
from enginewright_builder.engines.buckets import bucket_of
from enginewright_builder.engines.registry import all_engines
from enginewright_builder.engines.session_parameters import BUCKETS
from enginewright_builder.report.model import BuildReport
from enginewright_builder.triton.repository import ENGINES_FILE, VERSION

REPORT = "build-report.json"


@dataclass(frozen=True)
class Published:
    """An engine's folder in a store, and its report."""

    folder: Path
    report: BuildReport

    @classmethod
    def in_store(cls, store: Path) -> Published:
        """The one engine that ``store`` has. Raises ``ValueError`` where there is none, or another number."""
        reports = list(store.glob(f"*/{REPORT}"))
        if len(reports) != 1:
            raise ValueError(f"{store} has {len(reports)} published engines, expected 1")
        return cls(reports[0].parent, load(BuildReport, reports[0].read_text()))

    @property
    def version_folder(self) -> Path:
        return self.folder / MODEL_REPOSITORY / MODEL_FOLDER / VERSION

    def shipped(self, batch: int) -> str:
        """Name of the candidate that answers ``batch``."""
        return self._shipped(batch).name

    def accuracy(self, batch: int) -> dict[str, Any]:
        """Of the candidate that answers ``batch``, as the build's gate measured it: it may take no other batch."""
        one = self._shipped(batch)
        return {"accuracy": one.accuracy, "accuracy_low": one.accuracy_low, "passes": True}

    def trials(self) -> list[dict[str, Any]]:
        """What the time budget went into, in the order of the trials, and what became of it."""
        return [{"name": one.name, "verdict": one.verdict, "build_s": one.build_seconds, "gate_s": one.gate_seconds,
                 "reason": one.reason}
                for one in self.report.candidates if one.build_seconds is not None or "beside the builds" in one.reason]

    def untried(self) -> list[str]:
        """Candidates that the time budget did not reach."""
        return [one.name for one in self.report.candidates
                if one.verdict == "Skipped" and "the time budget" in one.reason]

    def runner(self, batch: int) -> Runner:
        """The engine that answers ``batch``, loaded from the published files."""
        backend = self._shipped(batch).backend
        return next(one for one in all_engines() if one.name == backend).load(self._artifact(batch))

    def _shipped(self, batch: int) -> CandidateSummary:
        by_bucket = {bucket: one for one in self.report.candidates for bucket in one.serves}
        return by_bucket[bucket_of(batch, tuple(sorted(by_bucket)))]

    def _artifact(self, batch: int) -> Artifact:
        one, there = self._shipped(batch), self.version_folder
        files, parameters = sorted(path.name for path in there.iterdir()), dict[str, str]()
        if (there / ENGINES_FILE).exists():
            engines = json.loads((there / ENGINES_FILE).read_text())["engines"]
            mine = next(entry for entry in engines if batch <= entry["up_to"])
            files = mine["files"]
            parameters = {**mine["parameters"], BUCKETS: ",".join(map(str, mine["buckets"]))}
        return Artifact(rung=Rung(backend=one.backend, precision=one.precision), triton_backend="python",
                        files={Path(name).name: there / name for name in files}, interface=self.report.interface,
                        runtime_version="", python_runtime=one.backend, parameters=parameters)
