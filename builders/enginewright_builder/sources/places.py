"""What the user calls a place that the pod calls otherwise: the pod's paths mean nothing to who reads a condition."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from enginewright_builder.contract import BuildRequest, ErrorReport

# Folders of the scratch volume into which ``resolve`` downloads, and into which it unpacks an archive of TorchServe.
SOURCE, EVALUATION, CALIBRATION, UNPACKED = "source", "evaluation", "calibration", "unpacked"
# Each checkpoint of a language model has a folder of its name below this one.
CHECKPOINTS = "checkpoints"
# And each draft below this one.
DRAFTS = "drafts"


def as_written(report: ErrorReport, request: BuildRequest, scratch: Path) -> ErrorReport:
    """``report`` with the request's own URIs in place of the pod's paths."""
    names = dict(_names(request, scratch))
    return dataclasses.replace(report, message=_renamed(report.message, names), value=_renamed(report.value, names),
                               remedy=_renamed(report.remedy, names))


def _names(request: BuildRequest, scratch: Path) -> Iterator[tuple[str, str]]:
    for claim, mount in request.mounts.items():
        for path in (Path(mount), Path(mount).resolve()):
            yield str(path), f"pvc://{claim}"
    for folder, data in ((SOURCE, request.source), (EVALUATION, request.accuracy.evaluation),
                         (CALIBRATION, request.engine.calibration)):
        if data is not None and "://" in data.uri:
            # The last part of the URI is the file's name there.
            yield str(scratch / folder), _parent(data.uri)
    for folder, listed in ((CHECKPOINTS, request.generate.checkpoints), (DRAFTS, request.generate.drafts)) if (
            request.generate) else ():
        for one in listed:
            if "://" in one.uri:
                yield str(scratch / folder / one.name), _parent(one.uri)
    yield str(scratch / UNPACKED), request.source.uri


def _parent(uri: str) -> str:
    """A file of a hub's or registry's repository lies below a folder of the repository's name."""
    repository = re.match(r"hf://[^/]+|oci://[^/]+(?:/[^/:@]+)*(?=/[^/:@]+[:@])", uri)
    return repository[0] if repository else uri.rpartition("/")[0]


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Whole names alone, the longest first: a claim may be mounted below another."""
    for path in sorted(names, key=len, reverse=True):
        text = re.sub(rf"{re.escape(path)}(?![\w.-])", names[path].replace("\\", r"\\"), text)
    return text
