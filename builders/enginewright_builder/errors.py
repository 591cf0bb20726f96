"""Errors of the builder, each of one family: the user's to mend, transient, or ours.

* :class:`UserError`: bad spec, source or data. Exit code 2; the operator waits for a change.
* :class:`TransientError`: network, store, node. Exit code 3; the Job is tried again.
* anything else: a bug. Exit code 1, with the traceback in the log.
"""

from __future__ import annotations

from enginewright_builder.contract import EXIT_TRANSIENT, EXIT_USER, ErrorFamily, ErrorReport


class BuilderError(Exception):
    """An error with a reason (CamelCase, shown in a condition), the field it concerns, its value, and the remedy."""

    family: ErrorFamily = "bug"
    exit_code = 1

    def __init__(self, reason: str, message: str, *, field: str = "", value: object = "", remedy: str = "") -> None:
        super().__init__(message)
        self.reason, self.message, self.field, self.value, self.remedy = reason, message, field, str(value), remedy

    def report(self) -> ErrorReport:
        return ErrorReport(family=self.family, reason=self.reason, message=self.message, field=self.field,
                           value=self.value, remedy=self.remedy)


class UserError(BuilderError):
    family: ErrorFamily = "user"
    exit_code = EXIT_USER


class TransientError(BuilderError):
    family: ErrorFamily = "transient"
    exit_code = EXIT_TRANSIENT
