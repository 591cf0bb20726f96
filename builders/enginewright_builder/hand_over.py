"""What a build leaves for who proves it: the engines that may ship, inputs and answers to try them with, and all that
the report needs. A folder with one document, read strictly, so that two programs may share it.

```
hand-over.json            the document
engines/<n>/<file>        files of each engine
arrays/<n>.npy            inputs and answers
staging/                  what is published as it is, such as the reference
```
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

import numpy as np

from enginewright_builder.accuracy.drift_report import DriftReport
from enginewright_builder.contract import (
    CONTRACT_VERSION,
    BuildRequest,
    CandidateSummary,
    ContractError,
    Interface,
    ResolvedSource,
    dumps,
    load,
)
from enginewright_builder.engines.base import Artifact, Joined, Member, Rung
from enginewright_builder.engines.composite import combine
from enginewright_builder.measure.layers import Folded
from enginewright_builder.measure.profile import EngineProfile
from enginewright_builder.measure.roofline import Ceilings, Measured, Work
from enginewright_builder.report.model import AccuracyEvidence, Hardware, Reference
from enginewright_builder.sequences import most_joined
from enginewright_builder.shapes import takes_batches
from enginewright_builder.tensors import Array, Steps, Tensors, whole_call
from enginewright_builder.triton.prove import Case
from enginewright_builder.triton.repository import place
from enginewright_builder.triton.smoke_record import SmokeSamples
from enginewright_builder.wire import to_wire

DOCUMENT, ENGINES, ARRAYS, STAGING = "hand-over.json", "engines", "arrays", "staging"

# By tensor, the file of its array below ``arrays``.
KeptTensors = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class KeptEngine:
    """An :class:`Artifact` that is no composite; ``files`` are names below its folder."""

    rung: Rung
    files: tuple[str, ...]
    triton_backend: str
    interface: Interface
    runtime_version: str
    python_runtime: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    in_python: Mapping[str, str] | None = None
    folded: tuple[Folded, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Share:
    """Engine number ``engine`` answers the batches up to ``up_to`` that none before it takes."""

    up_to: int
    engine: int


@dataclass(frozen=True, kw_only=True)
class Plain:
    """The engine of full precision that is served plainly for comparison."""

    name: str
    engine: int


@dataclass(frozen=True, kw_only=True)
class KeptCase:
    inputs: KeptTensors
    expected: KeptTensors


@dataclass(frozen=True, kw_only=True)
class KeptSmoke:
    """:class:`SmokeSamples` that the model takes in batches, or as it is sent."""

    inputs: KeptTensors
    reference: KeptTensors
    batches: tuple[int, ...]
    gated: tuple[KeptTensors, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Counted:
    """The model's work and what the device can do; ``notes`` say what is missing, and why."""

    work: Work | None = None
    ceilings: Ceilings | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class HandOver:
    """``request`` has all digests. ``served`` is one share where one engine answers every batch. ``shipped`` are the
    names of the candidates that serve, ``name`` all of them in words. The server has as many cores as ``hardware``.
    ``requests`` are single samples, the first of median length; ``warmup`` is one. ``steps`` are seconds of each
    step so far, ``spent`` of all of them. ``smoke`` is None where a sample is too large to keep. ``mixed`` are
    single samples of different length, which run together as ``joined`` says; None: requests of different length do
    not. ``not_apart`` says which steps are within model compute, as they could not be timed by themselves.
    ``takes_missing``: the source takes NaN for a value that is missing.
    ``profiles`` are of the engines that serve, where they were asked for; their traces lie in ``staging``."""

    request: BuildRequest
    source: ResolvedSource
    name: str
    shipped: tuple[str, ...]
    speedup: float
    fallback: str
    engines: tuple[KeptEngine, ...]
    served: tuple[Share, ...]
    plain: Plain | None
    candidates: tuple[CandidateSummary, ...]
    accuracy: AccuracyEvidence
    reference: Reference
    hardware: Hardware
    figures: tuple[Measured, ...]
    counted: Counted
    drift: Mapping[str, DriftReport]
    notes: tuple[str, ...]
    requests: tuple[KeptTensors, ...]
    warmup: KeptTensors
    cases: tuple[KeptCase, ...]
    smoke: KeptSmoke | None
    steps: Mapping[str, float]
    spent: float
    mixed: tuple[KeptCase, ...] = ()
    joined: Joined | None = None
    not_apart: tuple[str, ...] = ()
    takes_missing: bool = False
    profiles: tuple[EngineProfile, ...] = ()
    version: int = CONTRACT_VERSION


class Keeper:
    """Puts files into the folder of a hand-over, which it empties first; :meth:`write` ends it. ``folded`` measures
    what of an engine's run is not the model's own."""

    def __init__(self, folder: Path, folded: Callable[[Artifact], tuple[Folded, ...]] = lambda artifact: ()) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        self.folder, self._folded = folder, folded
        self.staging = folder / STAGING
        self.staging.mkdir(parents=True)
        (folder / ARRAYS).mkdir()
        self._arrays = 0
        self._engines: dict[int, int] = {}
        self._kept: list[KeptEngine] = []

    @property
    def engines(self) -> tuple[KeptEngine, ...]:
        return tuple(self._kept)

    def tensors(self, tensors: Tensors) -> KeptTensors:
        return {name: self._array(array) for name, array in tensors.items()}

    def case(self, case: Case) -> KeptCase:
        return KeptCase(inputs=self.tensors(case.inputs), expected=self.tensors(case.expected))

    def smoke(self, samples: SmokeSamples) -> KeptSmoke:
        return KeptSmoke(inputs=self.tensors(samples.inputs), reference=self.tensors(samples.reference),
                         batches=samples.batches, gated=tuple(map(self.tensors, samples.gated)))

    def engine(self, artifact: Artifact) -> int:
        """Its number: one artifact is kept once."""
        if id(artifact) not in self._engines:
            number = self._engines[id(artifact)] = len(self._kept)
            for name, source in artifact.files.items():
                place(source, self.folder / ENGINES / str(number) / name)
            self._kept.append(KeptEngine(
                rung=artifact.rung, files=tuple(sorted(artifact.files)), triton_backend=artifact.triton_backend,
                interface=artifact.interface, runtime_version=artifact.runtime_version,
                python_runtime=artifact.python_runtime, parameters=artifact.parameters,
                in_python=artifact.in_python, folded=self._folded(artifact)))
        return self._engines[id(artifact)]

    def served(self, artifact: Artifact, largest: int) -> tuple[Share, ...]:
        members = artifact.members or (Member(up_to=largest, artifact=artifact),)
        return tuple(Share(up_to=one.up_to, engine=self.engine(one.artifact)) for one in members)

    def write(self, document: HandOver) -> None:
        (self.folder / DOCUMENT).write_text(dumps(document), encoding="utf-8")

    def _array(self, array: Array) -> str:
        name = f"{self._arrays}.npy"
        self._arrays += 1
        # Texts lie in NumPy's own strings, since an array of objects would be pickled.
        np.save(self.folder / ARRAYS / name, array.astype(np.str_) if array.dtype.kind == "O" else array,
                allow_pickle=False)
        return name


class Handed:
    """A hand-over as it is read."""

    def __init__(self, folder: Path) -> None:
        """Raises :class:`ContractError` for a document that is none or says what cannot be, and ``OSError`` where it
        is not there."""
        self.folder, self.staging = folder, folder / STAGING
        self.document = load(HandOver, (folder / DOCUMENT).read_text(encoding="utf-8"))
        _check(self.document)
        self._artifacts = [self._artifact(number, one) for number, one in enumerate(self.document.engines)]

    @property
    def artifact(self) -> Artifact:
        """What ships."""
        members = [Member(up_to=one.up_to, artifact=self._artifacts[one.engine]) for one in self.document.served]
        artifact = combine(members) if len(members) > 1 else members[0].artifact
        return replace(artifact, joined=self.document.joined)

    @property
    def plain(self) -> tuple[str, Artifact] | None:
        return (self.document.plain.name, self._artifacts[self.document.plain.engine]) if self.document.plain else None

    @property
    def max_batch_size(self) -> int:
        """What the server is given: 0 for a model that takes no batches."""
        largest, how = self.document.request.engine.max_batch_size, self._artifacts[0].interface.sequence_batching
        return (most_joined(how, largest) if how else largest) if self._batched else 0

    @property
    def requests(self) -> list[Tensors]:
        """Each of one sample, as it is sent."""
        return [self._sent(self.tensors(one)) for one in self.document.requests]

    @property
    def warmup(self) -> Tensors:
        return self._sent(self.tensors(self.document.warmup))

    @property
    def cases(self) -> list[Case]:
        return self._cases(self.document.cases)

    @property
    def mixed(self) -> list[Case]:
        return self._cases(self.document.mixed)

    @property
    def smoke(self) -> SmokeSamples | None:
        kept, whole = self.document.smoke, self._stepped or not self._batched
        if kept is None:
            return None
        inputs, reference = (to_wire(self.tensors(one), batched=self._batched, ahead=2 * self._stepped)
                             for one in (kept.inputs, kept.reference))
        gated = tuple(to_wire(self.tensors(one), batched=self._batched) for one in kept.gated)
        return SmokeSamples(inputs=inputs, reference=reference, batches=kept.batches, gated=gated, whole=whole,
                            stepped=self._stepped)

    def _cases(self, kept: tuple[KeptCase, ...]) -> list[Case]:
        return [Case(inputs=self._sent(self.tensors(one.inputs)), expected=self._sent(self.tensors(one.expected)))
                for one in kept]

    @property
    def _stepped(self) -> bool:
        return self._artifacts[0].interface.sequence_batching is not None

    @property
    def _batched(self) -> bool:
        return takes_batches(self._artifacts[0].interface)

    def _sent(self, sample: Tensors) -> Tensors:
        if self._stepped:
            return Steps(to_wire(whole_call(sample), batched=self._batched, ahead=1))
        return to_wire(sample if self._batched else whole_call(sample), batched=self._batched)

    def tensors(self, kept: KeptTensors) -> Tensors:
        arrays = {name: np.load(self.folder / ARRAYS / file, allow_pickle=False) for name, file in kept.items()}
        return {name: array.astype(np.object_) if array.dtype.kind == "U" else array for name, array in arrays.items()}

    def _artifact(self, number: int, kept: KeptEngine) -> Artifact:
        folder = self.folder / ENGINES / str(number)
        return Artifact(rung=kept.rung, files={name: folder / name for name in kept.files},
                        triton_backend=kept.triton_backend, interface=kept.interface,
                        runtime_version=kept.runtime_version, python_runtime=kept.python_runtime,
                        parameters=kept.parameters, in_python=kept.in_python, folded=kept.folded)


def _check(document: HandOver) -> None:
    """What the types alone do not say."""
    numbers = [one.engine for one in (*document.served, *((document.plain,) if document.plain else ()))]
    if not document.served or any(not 0 <= number < len(document.engines) for number in numbers):
        raise ContractError(f"HandOver.served: names engines {numbers} of {len(document.engines)}")
    limits = [one.up_to for one in document.served]
    if limits != sorted(set(limits)):
        raise ContractError(f"HandOver.served: got the largest batches {limits}, expected each above the one before")
    for where, kept in (("requests", document.requests), ("warmup", (document.warmup,))):
        if not kept or not all(kept):
            raise ContractError(f"HandOver.{where}: no tensor is named")
    if not document.cases:
        raise ContractError("HandOver.cases: a proof needs at least one")
    for name in (*(name for one in document.engines for name in one.files), *_arrays(document)):
        path = PurePosixPath(name)
        if not path.parts or path.is_absolute() or ".." in path.parts:
            raise ContractError(f"HandOver: got the file name {name!r}, expected one below the hand-over's own folder")


def _arrays(document: HandOver) -> list[str]:
    kept = [*document.requests, document.warmup,
            *(part for one in (*document.cases, *document.mixed) for part in (one.inputs, one.expected))]
    if document.smoke:
        kept += [document.smoke.inputs, document.smoke.reference, *document.smoke.gated]
    return [file for one in kept for file in one.values()]
