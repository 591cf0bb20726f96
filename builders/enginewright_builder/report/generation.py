"""``build-report.json`` of a language model as dataclasses; read it back with ``contract.load``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from enginewright_builder.contract import CONTRACT_VERSION, CheckpointRequest
from enginewright_builder.generate.serving import Serving
from enginewright_builder.generate.sweep import Point
from enginewright_builder.generate.trial import Trial
from enginewright_builder.report.model import Hardware


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """Of the user's data, in tokens: prompts as the model reads them, and the longest answers that are asked for."""

    count: int
    mean_tokens: float
    longest_tokens: int
    mean_answer: float
    longest_answer: int


@dataclass(frozen=True, kw_only=True)
class GenerateReport:
    """``command`` repeats the build by hand. ``trials`` begin with the reference, as vLLM serves it by default;
    ``default`` is the best load of it, and ``gain`` what ships against that; ``confirmed`` says whether the default was
    measured again after all others. ``steps`` are seconds of each, ``checkpoints`` and ``drafts`` the user's own, with
    their digests.
    Fields are only ever added within one ``version``."""

    model_name: str
    fingerprint: str
    created: str
    command: str
    source_uri: str
    source_digest: str
    architecture: str
    context: int
    prompts: Prompts
    trials: tuple[Trial, ...]
    serving: Serving
    default: Point
    gain: float
    confirmed: bool
    hardware: Hardware
    versions: Mapping[str, str] = field(default_factory=dict)
    steps: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    checkpoints: tuple[CheckpointRequest, ...] = ()
    drafts: tuple[CheckpointRequest, ...] = ()
    version: int = CONTRACT_VERSION


def prompts(lengths: Sequence[int], answers: Sequence[int]) -> Prompts:
    return Prompts(count=len(lengths), mean_tokens=round(sum(lengths) / len(lengths), 1), longest_tokens=max(lengths),
                   mean_answer=round(sum(answers) / len(answers), 1), longest_answer=max(answers))
