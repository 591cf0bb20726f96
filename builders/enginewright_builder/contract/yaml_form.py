"""Values in messages, as users write them in YAML and JSON, not as Python prints them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

KINDS: Mapping[type, str] = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
_PLAIN = re.compile(r"[A-Za-z_][\w./:-]*")  # a text that YAML takes without quotes
_OTHER_VALUES = ("null", "true", "false", "yes", "no", "on", "off")


def as_written(value: object) -> str:
    """``true``, ``null``, ``[batch, 3]``, ``{a: 1}``. A text, and what YAML has no form for, is itself."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="replace")
    if isinstance(value, float):
        return f"{value!r}" if math.isfinite(value) else f"{value}".replace("inf", ".inf").replace("nan", ".nan")
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_inside(name)}: {_inside(item)}' for name, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_inside, value))}]"
    return str(value)


def quoted(value: object) -> str:
    """As :func:`as_written`, a text in quotes."""
    return repr(value) if isinstance(value, str) else as_written(value)


def _inside(value: Any) -> str:
    if not isinstance(value, str):
        return as_written(value)
    return value if _PLAIN.fullmatch(value) and value.lower() not in _OTHER_VALUES else json.dumps(
        value, ensure_ascii=False)
