"""What can go wrong on the wire, in the three families that decide what happens next.

::

    ClientError
    ├── TransientError        retry with backoff; ``retry_after`` seconds where the server said so
    │   ├── NotLeadingError   not sent: this operator's Lease may be another one's by now
    │   └── ConflictError     another client wrote first (409)
    │       ├── AlreadyExistsError
    │       └── LostRaceError      a claim that another pass made first
    ├── RefusedError          the cluster says no (400, 403, 404, 413, 422): someone has to change something, retry
    │   │                     slowly
    │   ├── NotFoundError
    │   └── TooLargeError     an answer that is larger than the operator reads
    └── UnexpectedError       a defect of ours, or an answer that cannot be read
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar


class Family(StrEnum):
    """Whose turn it is: the user's, time's, or ours."""

    USER = "user"
    TRANSIENT = "transient"
    BUG = "bug"


class ClientError(Exception):
    """A call failed. ``call`` says which (``PATCH jobs/build-x``), ``status`` is the HTTP status, 0 when none came."""

    family: ClassVar[Family] = Family.BUG

    def __init__(self, message: str, *, call: str = "", status: int = 0, reason: str = "") -> None:
        super().__init__(f"{call}: {message}" if call else message)
        self.message = message
        self.call = call
        self.status = status
        self.reason = reason


class TransientError(ClientError):
    """Time will tell: throttled, overloaded, unreachable, too slow, or written to by someone else."""

    family = Family.TRANSIENT

    def __init__(
        self, message: str, *, call: str = "", status: int = 0, reason: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message, call=call, status=status, reason=reason)
        self.retry_after = retry_after


class NotLeadingError(TransientError):
    """The operator has not renewed its Lease in time, so that another one may work: nothing was sent."""


class ConflictError(TransientError):
    """The object changed since it was read, or a precondition did not hold."""


class AlreadyExistsError(ConflictError):
    """A create met an object of that name."""


class LostRaceError(ConflictError):
    """Another pass claimed first: what the pass found is history, and another pass finds who."""


class RefusedError(ClientError):
    """The cluster will keep saying no until someone changes a manifest, a quota or a permission."""

    family = Family.USER


class NotFoundError(RefusedError):
    """The object, its namespace, or the whole API is not there."""


class TooLargeError(RefusedError):
    """The answer is larger than the operator reads: someone made an object that large."""


class UnexpectedError(ClientError):
    """Neither the user nor time can mend this."""


def family_of(error: Exception) -> Family:
    """Of whatever a pass was ended by; what no client raised and was not too slow is a defect."""
    if isinstance(error, ClientError):
        return error.family
    return Family.TRANSIENT if isinstance(error, TimeoutError) else Family.BUG
