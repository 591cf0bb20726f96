"""What applying a manifest would change, and what that would cost: nothing, new pods, or a build. Pure.

The plugin does not know the operator's settings (images, what the server image has). They are the same before and
after, so both specs go through the operator's own functions with settings that stand for them, and are only compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from enginewright.core.config import OperatorConfig
from enginewright.core.manifests import revision_name
from enginewright.core.placement import place
from enginewright.core.problems import Problem
from enginewright.core.request import build_request, server_image, source_key
from enginewright.core.spec import CheckpointSpec, DataSpec, SourceSpec, Spec, parse_spec, validate
from enginewright.core.spec.fleet import classes_of, member_spec
from enginewright_builder.contract import ResolvedSource, RuntimeRequest

NOTHING: Final = "nothing changes"
NEW: Final = "it is new: the operator reads the source, builds an engine unless the store has it, and serves it"


@dataclass(frozen=True, kw_only=True)
class Change:
    """``before`` and ``after`` are values as the API has them, defaults included; None: not there."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, kw_only=True)
class Difference:
    """``problems``: it would be refused. ``effect`` is a sentence for people."""

    changes: tuple[Change, ...] = ()
    effect: str = ""
    problems: tuple[Problem, ...] = ()


def difference(live: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> Difference:
    """Of an object in the cluster, None where there is none, and the one in a file."""
    spec = parse_spec(wanted.get("spec") or {})
    if not isinstance(spec, Spec):
        return Difference(problems=tuple(spec))
    if problems := validate(spec):
        return Difference(problems=tuple(problems))
    before = parse_spec((live or {}).get("spec") or {})
    if live is None or not isinstance(before, Spec):
        return Difference(effect=NEW)
    changes = tuple(_changes(_plain(before), _plain(spec), "spec"))
    return Difference(changes=changes, effect=_effect(before, spec) if changes else NOTHING)


def lines(name: str, difference: Difference) -> list[str]:
    """For a terminal, a file or a pipe."""
    if difference.problems:
        return [f"{name}: the operator would refuse it", *(f"  {problem}" for problem in difference.problems)]
    return [f"{name}: {difference.effect}",
            *(f"  {one.path}: {_value(one.before)} -> {_value(one.after)}" for one in difference.changes)]


def plain(difference: Difference) -> dict[str, Any]:
    """For JSON and YAML."""
    return {"effect": difference.effect, "changes": [vars(one) for one in difference.changes],
            "problems": [str(problem) for problem in difference.problems]}


def _value(value: Any) -> str:
    return "(none)" if value is None else json.dumps(value)


def _effect(before: Spec, after: Spec) -> str:
    rolled_out = f"rolled out by {after.rollout.strategy}"
    if source_key(before) != source_key(after):
        return ("the operator reads the source and its data again; if their content has changed, it builds another "
                f"engine unless the store has it, and rolls it out by {after.rollout.strategy}")
    engines, revisions = zip(*(_identities(spec) for spec in (before, after)), strict=True)
    if engines[0] != engines[1]:
        return f"another engine: built unless the store has it, then {rolled_out}"
    if revisions[0] != revisions[1]:
        return f"no build: the same engine in new pods, {rolled_out}"
    return "no build and no new revision: it takes effect at once"


def _identities(spec: Spec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Engines and revisions: one of each, or of a fleet one for each class."""
    members = [member_spec(spec, entry) for entry in classes_of(spec)] or [spec]
    engines, revisions = zip(*map(_identity, members), strict=True)
    return engines, revisions


def _identity(spec: Spec) -> tuple[str, str]:
    config = OperatorConfig()
    resolved = _unread(spec)
    placement = place(spec, resolved.size_bytes, config)
    if isinstance(placement, Problem):
        return str(placement), ""
    runtime = RuntimeRequest(server_image=server_image(spec, config))
    fingerprint = build_request("model", spec, resolved, placement, config, runtime).fingerprint()
    return fingerprint, revision_name(fingerprint, spec, placement, config)


def _unread(spec: Spec) -> ResolvedSource:
    """The source and its data, which only the operator reads: a URI is digested in place of the content."""
    return ResolvedSource(digest=_digest(spec.source), format="onnx", size_bytes=0,
                          evaluation_digest=_digest(spec.accuracy.evaluation),
                          calibration_digest=_digest(spec.engine.calibration),
                          checkpoint_digests={one.name: _digest(one) for one in spec.engine.checkpoints},
                          draft_digests={one.name: _digest(one) for one in spec.engine.drafts})


def _digest(of: SourceSpec | DataSpec | CheckpointSpec | None) -> str:
    return f"sha256:{hashlib.sha256(of.uri.encode()).hexdigest()}" if of else ""


def _plain(spec: Spec) -> Mapping[str, Any]:
    return spec.model_dump(mode="json", by_alias=True)


def _changes(before: Any, after: Any, path: str) -> Iterator[Change]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted(before.keys() | after.keys()):
            yield from _changes(before.get(name), after.get(name), f"{path}.{name}")
    elif before != after:
        yield Change(path=path, before=before, after=after)
