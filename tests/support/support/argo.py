"""What Argo CD makes of an object by our health script, in the Lua version that it embeds (5.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lupa import lua51

SCRIPT = Path(__file__).resolve().parents[3] / "examples" / "gitops" / "argo-cd" / "health.lua"


def health(obj: dict[str, Any]) -> tuple[str, str]:
    """Status and message."""
    lua = lua51.LuaRuntime(register_eval=False, register_builtins=False)
    lua.globals().obj = lua.table_from(obj, recursive=True)
    found = lua.execute(SCRIPT.read_text())
    return str(found["status"]), str(found["message"])
