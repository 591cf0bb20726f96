"""The key of a server's model control, which the builder's first program leaves in memory for the server that proves
the engine, and for the program that drives it."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

KEY_BYTES = 32


def leave_key(target: Path) -> None:
    """A new one, a line of hexadecimal digits, that its owner alone may read. Raises :class:`OSError`."""
    target.unlink(missing_ok=True)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    with open(descriptor, "w", encoding="ascii") as writer:
        writer.write(f"{secrets.token_hex(KEY_BYTES)}\n")
