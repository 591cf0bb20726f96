"""What the apiserver says, by family."""

from __future__ import annotations

import json

import pytest

from enginewright.clients.answers import failure
from enginewright.clients.errors import (
    AlreadyExistsError,
    ConflictError,
    Family,
    NotFoundError,
    RefusedError,
    TransientError,
    UnexpectedError,
)


def status(code: int, reason: str = "", message: str = "said", details: dict[str, object] | None = None) -> bytes:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    ("code", "reason", "expected", "family"),
    [
        (409, "AlreadyExists", AlreadyExistsError, Family.TRANSIENT),
        (409, "Conflict", ConflictError, Family.TRANSIENT),
        (401, "Unauthorized", TransientError, Family.TRANSIENT),
        (429, "TooManyRequests", TransientError, Family.TRANSIENT),
        (500, "InternalError", TransientError, Family.TRANSIENT),
        (503, "ServiceUnavailable", TransientError, Family.TRANSIENT),
        (504, "Timeout", TransientError, Family.TRANSIENT),
        (400, "BadRequest", RefusedError, Family.USER),
        (403, "Forbidden", RefusedError, Family.USER),
        (404, "NotFound", NotFoundError, Family.USER),
        (413, "RequestEntityTooLarge", RefusedError, Family.USER),
        (422, "Invalid", RefusedError, Family.USER),
        (405, "MethodNotAllowed", UnexpectedError, Family.BUG),
        (415, "UnsupportedMediaType", UnexpectedError, Family.BUG),
    ],
)
def test_family(code: int, reason: str, expected: type[Exception], family: Family) -> None:
    error = failure(code, {}, status(code, reason), "patch /x")
    assert type(error) is expected
    assert error.family is family
    assert (error.status, error.reason) == (code, reason)
    assert str(error) == f"patch /x: {code} said"


def test_a_manifest_that_does_not_fit_the_schema_is_refused_though_apply_answers_500() -> None:
    said = "failed to create typed patch object (ns/x; apps/v1, Kind=Deployment): .spec.foo: field not declared"
    assert isinstance(failure(500, {}, status(500, message=said), "apply"), RefusedError)


@pytest.mark.parametrize(
    ("headers", "details", "expected"),
    [
        ({"Retry-After": "7"}, {}, 7.0),
        ({}, {"retryAfterSeconds": 3}, 3.0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, {}, None),
        ({"Retry-After": "-5"}, {}, 0.0),
        ({}, {}, None),
    ],
)
def test_retry_after(headers: dict[str, str], details: dict[str, object], expected: float | None) -> None:
    error = failure(429, headers, status(429, details=details), "get")
    assert isinstance(error, TransientError)
    assert error.retry_after == expected


@pytest.mark.parametrize("payload", [b"", b"upstream is down", b"[1]", b"\xff\xfe"])
def test_an_answer_that_is_no_status_object_still_makes_a_message(payload: bytes) -> None:
    error = failure(502, {}, payload, "get /x")
    assert isinstance(error, TransientError)
    assert str(error).startswith("get /x: 502")
