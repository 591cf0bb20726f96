"""The termination log of this container, in which the operator reads how it ended. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path

from enginewright_builder.contract import Outcome

TERMINATION_LOG = "/dev/termination-log"
_VARIABLE = "ENGINEWRIGHT_TERMINATION_LOG"


def leave_outcome(outcome: Outcome) -> None:
    """Where there is such a log, or the environment names a file for it: outside of a cluster there is none. Raises
    :class:`OSError`."""
    path = Path(os.environ.get(_VARIABLE, TERMINATION_LOG))
    if _VARIABLE in os.environ or path.exists():
        path.write_text(outcome.to_termination_message(), encoding="utf-8")
