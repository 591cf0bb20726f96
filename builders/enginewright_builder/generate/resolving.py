"""What can be known of a language model before a server is started: is it there, whole, safe, and of which content?"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from enginewright_builder.contract import CAUSAL_FORMAT, BuildRequest, ResolvedSource
from enginewright_builder.engine_store import store
from enginewright_builder.errors import UserError
from enginewright_builder.generate.checkpoints import resolve_checkpoints
from enginewright_builder.generate.client import Ask
from enginewright_builder.generate.drafts import resolve_drafts
from enginewright_builder.generate.prompts import check_prompts, read_prompts
from enginewright_builder.sources import places
from enginewright_builder.sources.base import FetchContext
from enginewright_builder.sources.causal import Causal, locate_causal
from enginewright_builder.sources.fetching import fetch
from enginewright_builder.sources.formats import size_bytes
from enginewright_builder.sources.signature import asked_for

_DATA = "spec.accuracy.evaluation.uri"


@dataclass(frozen=True, kw_only=True)
class ResolvedModel:
    """``request`` has all digests. No two of ``asks`` are equal; ``prompts`` is the file that they are from.
    ``checkpoints`` and ``drafts`` are by their names."""

    request: BuildRequest
    model: Causal
    source: ResolvedSource
    asks: tuple[Ask, ...]
    prompts: Path
    notes: tuple[str, ...]
    checkpoints: Mapping[str, Causal] = dataclasses.field(default_factory=dict)
    drafts: Mapping[str, Causal] = dataclasses.field(default_factory=dict)

    def folder(self, checkpoint: str) -> Path:
        """Of the checkpoint of that name, or of the source where it is empty."""
        return self.checkpoints[checkpoint].path if checkpoint else self.model.path


def resolve_model(request: BuildRequest, scratch: Path) -> ResolvedModel:
    """Raises :class:`UserError` with the field to change, :class:`TransientError` when trying again may help."""
    _check_numbers(request)
    path, digest = fetch(request.source.uri, FetchContext(mounts=request.mounts, scratch=scratch / places.SOURCE,
                                                          digest=request.source.digest,
                                                          check=asked_for(request.signature)))
    if not path.is_dir():
        raise UserError("FormatUnknown", "the source is a file, and a language model is a folder",
                        field="spec.source.uri", value=request.source.uri,
                        remedy="give the folder that save_pretrained writes")
    model = locate_causal(path)
    prompts, evaluation_digest = _prompts(request, scratch)
    asks, notes = _asks(prompts, request)
    if model.quantised:
        notes.append(f"The source is quantised already ({model.quantised}): what is called the unquantised model here "
                     "is the source as it is.")
    check_prompts(len(asks), request.accuracy.tolerance)
    if any(ask.chat for ask in asks) and not model.chat:
        raise UserError("TemplateFailed", "the prompts are messages, and the model has no chat template",
                        field=_DATA, value=request.accuracy.evaluation.uri if request.accuracy.evaluation else "",
                        remedy="give texts (prompt) in place of messages, or add chat_template.jinja to the folder")
    others, drafts = resolve_checkpoints(request, model, scratch), resolve_drafts(request, model, scratch)
    source = ResolvedSource(digest=digest, format=CAUSAL_FORMAT, size_bytes=size_bytes(path),
                            evaluation_digest=evaluation_digest,
                            checkpoint_digests={name: one.digest for name, one in others.items()},
                            draft_digests={name: one.digest for name, one in drafts.items()})
    request = _with_digests(request, source)
    if not (engines := store.of(request)).holds(request.fingerprint()):
        largest = max(size_bytes(one.model.path) for one in others.values()) if others else 0
        beside = max(size_bytes(one.model.path) for one in drafts.values()) if drafts else 0
        engines.check_writable(max(source.size_bytes, largest) + beside)
    return ResolvedModel(request=request, model=model, source=source, asks=asks, prompts=prompts,
                         notes=tuple(notes), checkpoints={name: one.model for name, one in others.items()},
                         drafts={name: one.model for name, one in drafts.items()})


def _check_numbers(request: BuildRequest) -> None:
    wishes = request.generate
    assert wishes is not None
    for field, option, value, least in (
            ("spec.engine.buildBudgetSeconds", "--budget-seconds", request.engine.build_budget_seconds, 1),
            ("spec.objective.tokens.ttftMilliseconds", "--ttft-ms", wishes.ttft_ms, 0),
            ("spec.objective.tokens.tpotMilliseconds", "--tpot-ms", wishes.tpot_ms, 0),
            ("spec.engine.contextTokens", "--context", wishes.context_tokens, 0)):
        if not least <= value < 1 << 40:  # NaN is not, either
            raise UserError("RequestInvalid", f"{field}: {value} is out of range", field=field, value=value,
                            remedy=f"write a positive number (by hand {option})")


def _prompts(request: BuildRequest, scratch: Path) -> tuple[Path, str]:
    """The file, and its digest."""
    data = request.accuracy.evaluation
    if data is None:
        raise UserError("PromptsMissing", "a language model is proven with prompts like those of its users, and none "
                        "are given", field=_DATA, remedy='give a file of JSON lines, such as {"prompt": "…", '
                        '"max_tokens": 64} (by hand --evaluation)')
    return fetch(data.uri, FetchContext(mounts=request.mounts, scratch=scratch / places.EVALUATION, field=_DATA,
                                        digest=data.digest))


def _asks(path: Path, request: BuildRequest) -> tuple[tuple[Ask, ...], list[str]]:
    assert request.accuracy.evaluation is not None
    asks = read_prompts(path)[:request.accuracy.evaluation.samples or None]
    different: dict[str, Ask] = {}
    for ask in asks:
        different.setdefault(_key(ask), ask)
    kept = tuple(different.values())
    repeated = len(asks) - len(kept)
    return kept, [f"{repeated} of {len(asks)} prompts are there more than once: they count once"] if repeated else []


def _key(ask: Ask) -> str:
    """Equal for equal prompts, whatever the length of the answer."""
    prompt: Sequence[object] = ask.prompt if isinstance(ask.prompt, str) else [dict(one) for one in ask.prompt
                                                                                if isinstance(one, dict)]
    return json.dumps(prompt, sort_keys=True)


def _with_digests(request: BuildRequest, source: ResolvedSource) -> BuildRequest:
    assert request.accuracy.evaluation is not None
    assert request.generate is not None
    evaluation = dataclasses.replace(request.accuracy.evaluation, digest=source.evaluation_digest)
    checkpoints = tuple(dataclasses.replace(one, digest=source.checkpoint_digests[one.name])
                        for one in request.generate.checkpoints)
    drafts = tuple(dataclasses.replace(one, digest=source.draft_digests[one.name]) for one in request.generate.drafts)
    return dataclasses.replace(
        request, generate=dataclasses.replace(request.generate, checkpoints=checkpoints, drafts=drafts),
        source=dataclasses.replace(request.source, digest=source.digest, format=source.format),
        accuracy=dataclasses.replace(request.accuracy, evaluation=evaluation))
