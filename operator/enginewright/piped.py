"""How a command ends whose reader has seen enough, as ``head`` does."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

EXIT_PIPE: Final = 141  # as a shell tells it of a program that SIGPIPE ended


def until_read(command: Callable[[], int]) -> int:
    """The command's exit status, its output written; ``EXIT_PIPE`` where nothing reads that any more."""
    try:
        code = command()
        sys.stdout.flush()
    except BrokenPipeError:  # Python flushes once more when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE
    return code
