"""Kubernetes conditions as plain data: built once a pass, merged with the old ones so that time moves only with
status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, Self

from enginewright.core.reasons import Condition
from enginewright_builder.contract import printable

# The limit that metav1.Condition sets on a message.
MESSAGE_LIMIT = 32768
ConditionStatus = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a stage found; which condition says it is said where all is reported. ``reason`` is a :class:`Reason` or one
    of the builder's."""

    status: ConditionStatus
    reason: str
    message: str

    @property
    def ok(self) -> bool:
        return self.status == "True"

    def about(self, kind: Condition) -> Verdict:
        return Verdict(type=kind, status=self.status, reason=self.reason, message=self.message)

    def adding(self, message: str) -> Self:
        """The same, with a sentence more."""
        return replace(self, message=" ".join(filter(None, (self.message, message))))


@dataclass(frozen=True, kw_only=True)
class Verdict(Finding):
    """What one condition says."""

    type: Condition


def yes(reason: str, message: str) -> Finding:
    return Finding(status="True", reason=reason, message=message)


def no(reason: str, message: str) -> Finding:
    return Finding(status="False", reason=reason, message=message)


def open_question(reason: str, message: str) -> Finding:
    return Finding(status="Unknown", reason=reason, message=message)


def good(kind: Condition, reason: str, message: str) -> Verdict:
    return Verdict(type=kind, status="True", reason=reason, message=message)


def bad(kind: Condition, reason: str, message: str) -> Verdict:
    return Verdict(type=kind, status="False", reason=reason, message=message)


def unknown(kind: Condition, reason: str, message: str) -> Verdict:
    return Verdict(type=kind, status="Unknown", reason=reason, message=message)


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC to the second, as Kubernetes writes ``metav1.Time``."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(moment: datetime) -> str:
    """RFC 3339 in UTC to the microsecond, as Kubernetes writes ``metav1.MicroTime``."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_timestamp(text: object) -> datetime | None:
    """The moment, or None for anything that is not a time: a status may have been edited by hand."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def find(conditions: object, kind: str) -> Mapping[str, Any]:
    """The old condition of that type, or an empty mapping."""
    if isinstance(conditions, list):
        for entry in conditions:
            if isinstance(entry, dict) and entry.get("type") == kind:
                return entry
    return {}


def merge(old: object, verdicts: Iterable[Verdict], generation: int, now: datetime) -> list[dict[str, Any]]:
    """The new list in the order of ``verdicts``. ``lastTransitionTime`` is kept while the status stays; types that
    no step sets any more are dropped."""
    return [_entry(find(old, verdict.type), verdict, generation, now) for verdict in verdicts]


def _entry(before: Mapping[str, Any], verdict: Verdict, generation: int, now: datetime) -> dict[str, Any]:
    kept = before.get("lastTransitionTime") if before.get("status") == verdict.status else None
    return {
        "type": str(verdict.type),
        "status": verdict.status,
        "reason": str(verdict.reason),
        "message": printable(verdict.message)[:MESSAGE_LIMIT],
        "observedGeneration": generation,
        "lastTransitionTime": kept if parse_timestamp(kept) else timestamp(now),
    }


def refused(
    before: Mapping[str, Any], status: Mapping[str, Any], verdicts: tuple[Verdict, ...], generation: int, now: datetime
) -> dict[str, Any]:
    """``status`` where nothing is done, or something could not be: ``verdicts`` in place of what it says of them, the
    reason of the first in the summary, where there is one. ``before`` is what status said when the pass began."""
    kinds, known = {verdict.type for verdict in verdicts}, status.get("conditions")
    entries = known if isinstance(known, list) else []
    place = next((index for index, entry in enumerate(entries) if entry.get("type") in kinds), 0)
    kept = [entry for entry in entries if entry.get("type") not in kinds]
    merged = merge(before.get("conditions"), verdicts, generation, now)
    found = {**status, "conditions": [*kept[:place], *merged, *kept[place:]]}
    if "summary" in status:
        found["summary"] = {**(status["summary"] or {}), "reason": str(verdicts[0].reason)}
    return found
