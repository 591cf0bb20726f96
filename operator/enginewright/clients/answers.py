"""What the apiserver's refusals mean, by family."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from enginewright.clients.errors import (
    AlreadyExistsError,
    ClientError,
    ConflictError,
    NotFoundError,
    RefusedError,
    TransientError,
    UnexpectedError,
)

# 410: a list or a watch took longer than the apiserver keeps old versions, and begins again.
_TRANSIENT: Final = frozenset({401, 408, 410, 425, 429})
_REFUSED: Final = frozenset({400, 403, 413, 422})
# Server-side apply answers 500 to a manifest that does not fit the schema, where other writes answer 400 or 422.
_BAD_APPLY: Final = "failed to create typed patch object"


def failure(status: int, headers: Mapping[str, str], payload: bytes, call: str) -> ClientError:
    """The error for an HTTP ``status`` of 300 and above, by family, with what the apiserver's ``Status`` object
    says."""
    details = _status_object(payload)
    reason = str(details.get("reason") or "")
    # Of an answer without a Status, as a proxy gives one, nothing is quoted: it ends in status.
    message = f"{status} {details.get('message') or 'without a Status; see the logs of the apiserver and of proxies'}"
    if status == 409:
        kind = AlreadyExistsError if reason == "AlreadyExists" else ConflictError
        return kind(message, call=call, status=status, reason=reason)
    if status == 404:
        return NotFoundError(message, call=call, status=status, reason=reason)
    if status in _REFUSED or _BAD_APPLY in message:
        return RefusedError(message, call=call, status=status, reason=reason)
    if status in _TRANSIENT or status >= 500:
        retry_after = _retry_after(headers, details)
        return TransientError(message, call=call, status=status, reason=reason, retry_after=retry_after)
    return UnexpectedError(message, call=call, status=status, reason=reason)


def _status_object(payload: bytes) -> dict[str, Any]:
    try:
        document = json.loads(payload)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _retry_after(headers: Mapping[str, str], details: Mapping[str, Any]) -> float | None:
    """Seconds. The header may also be a date, which no apiserver sends: it is left out rather than parsed."""
    stated = headers.get("Retry-After") or (details.get("details") or {}).get("retryAfterSeconds")
    try:
        return max(0.0, float(stated)) if stated else None
    except (TypeError, ValueError):
        return None
