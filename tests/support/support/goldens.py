"""Golden files: what the code gives now is held against what was reviewed and committed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

UPDATE = "ENGINEWRIGHT_UPDATE_GOLDENS"


def check_golden(path: Path, value: Any) -> None:
    """Fails when ``value``, as YAML, differs from the file; writes the file instead where the update is asked for."""
    text = yaml.safe_dump(value, sort_keys=False, width=120, allow_unicode=True)
    if os.environ.get(UPDATE):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"{path.name} is missing; run: make golden"
    assert text == path.read_text(), f"{path.name} differs; look at the change, then run: make golden"
