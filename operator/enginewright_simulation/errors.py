"""What a simulation refuses, for people."""

from __future__ import annotations


class InputError(Exception):
    """Bad input: names the file or option, the value, and what to write instead."""
