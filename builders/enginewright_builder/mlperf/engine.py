"""An engine of the store, as LoadGen's runs need it: its report, a server for it, and samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from enginewright_builder.contract import (
    LANGUAGE_MODEL_FOLDER,
    MODEL_FOLDER,
    MODEL_REPOSITORY,
    REPORT_FILE,
    Interface,
    Manifest,
)
from enginewright_builder.data.files import DataField, check_against, read_samples
from enginewright_builder.engine_store.manifest import verify
from enginewright_builder.loadgen.samples import Row
from enginewright_builder.models.synthetic import DEFAULT_SIZE, example_inputs, usual_size
from enginewright_builder.report import BuildReport, read_report
from enginewright_builder.shapes import takes_batches
from enginewright_builder.triton.model_config import TAKES_MISSING, parse_text
from enginewright_builder.wire import to_wire

SYNTHETIC_SAMPLES = 256
GIVEN, SYNTHETIC = "given", "synthetic"
_DATA = DataField(path="--data", reason="EvaluationDataInvalid")


@dataclass(frozen=True, kw_only=True)
class Engine:
    folder: Path
    manifest: Manifest
    report: BuildReport

    @property
    def most(self) -> int:
        """Samples that one request may have."""
        return max(1, self.report.serving.max_batch_size) if takes_batches(self.report.interface) else 1

    @property
    def takes_missing(self) -> bool:
        """Whether NaN in its inputs is a value that is missing."""
        return TAKES_MISSING in parse_text(self.report.config_pbtxt).parameters

    def linked(self, repository: Path, name: str) -> None:
        """Puts it into a model repository, under a name."""
        (repository / name).symlink_to((self.folder / MODEL_REPOSITORY / MODEL_FOLDER).resolve())


def open_engine(folder: Path) -> Engine:
    """Raises ``ValueError`` for what is no engine that takes tensors, and what :func:`verify` raises for one that is
    not whole."""
    if (folder / LANGUAGE_MODEL_FOLDER).is_dir():
        raise ValueError(f"{folder} has a language model, which is measured in tokens; its report has those figures")
    if not (folder / REPORT_FILE).is_file():
        raise ValueError(f"{folder} is no engine of a store: give the folder that a build named, with "
                         f"{REPORT_FILE} in it")
    if read_report(folder).interface.sequence_batching:
        raise ValueError(f"{folder} has an engine of sequences, of which each request waits for the one before, and "
                         "LoadGen sends requests that do not: the build report has figures of its steps")
    # Caches: a server that a person started on it leaves some.
    return Engine(folder=folder, manifest=verify(folder, bytecode=True), report=read_report(folder))


def samples(interface: Interface, data: Path | None, *, missing: bool = False) -> tuple[Sequence[Row], str]:
    """Rows as requests have them, and where they come from; with ``missing`` NaN stands for values that are missing.
    Raises :class:`UserError` for data that the engine does not take."""
    batched = takes_batches(interface)
    if data is None:
        size = usual_size(interface, DEFAULT_SIZE)
        made = [example_inputs(interface, 1, seed, size=size) for seed in range(SYNTHETIC_SAMPLES)]
        # Without batches a sample is a whole call.
        return [to_wire(row, batched=True) if batched else {name: array[0] for name, array in row.items()}
                for row in made], SYNTHETIC
    words = any(spec.dtype == "string" for spec in interface.inputs)
    checked = check_against(read_samples(data, _DATA, words=words), interface, _DATA, missing=missing).distinct()
    if checked.texts:
        raise _DATA.invalid(f"{data.name} holds texts, and the engine takes token ids", data,
                            "give arrays named as the engine's inputs, in .npz or .jsonl")
    if not batched:
        return checked.rows, GIVEN
    return [to_wire({name: array[None] for name, array in row.items()}, batched=True) for row in checked.rows], GIVEN
