"""What trials took in earlier builds, kept in the store beside TensorRT's timing caches: a small JSON file for each
class of device, which says by what factor each kind of trial took longer than the benchmarks tell.

A hint, no more: with signing keys it counts only with their MAC, without them it is read as anybody's, and no factor is
believed that is further off than :data:`MOST`. A file that is damaged counts as none. Standard library only.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from enginewright_builder.contract import canonical
from enginewright_builder.engine_store.signing import Keys

VERSION = 1
# Kernels that are timed already make a rebuild ten times as quick, and another model's first build is not.
MOST = 3.0
# Weight of a build's own factor against what was known before.
_NEWEST = 0.5
_MOST_BYTES, _MOST_KINDS = 64 << 10, 200
_KIND = re.compile(r"[a-z0-9 @-]{1,60}")


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """``problem`` says why a file that was there does not count."""

    paces: Mapping[str, float] = field(default_factory=dict)
    problem: str = ""


def load(folder: Path, device: str, keys: Keys | None = None) -> Loaded:
    path = folder / _file(device)
    try:
        with path.open("rb") as reader:
            raw = reader.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise ValueError("it is too large")
        held = json.loads(raw)
        body = held["body"]
        if keys and not keys.verifies(_purpose(device), canonical(body).encode(), str(held.get("mac"))):
            raise ValueError("it bears no signature of a build Job of this namespace")
        if (body["version"], body["device"]) != (VERSION, device):
            raise ValueError("it is of another version or device")
        return Loaded(paces=_believed(body["paces"]))
    except FileNotFoundError:
        return Loaded()
    except OSError as error:
        return Loaded(problem=f"{path.name} cannot be read: {error.strerror}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return Loaded(problem=f"{path.name} does not count: {error}")


def save(folder: Path, device: str, paces: Mapping[str, float], before: Mapping[str, float],
         keys: Keys | None = None) -> None:
    """``paces`` of this build, mixed with those from ``before``. Replaces the file in one step. Raises ``OSError``."""
    mixed = dict(before)
    for kind, pace in paces.items():
        known = math.log(before.get(kind, pace))
        mixed[kind] = math.exp(_NEWEST * math.log(_bounded(pace)) + (1 - _NEWEST) * known)
    kept = {kind: round(_bounded(mixed[kind]), 3) for kind in sorted(mixed)[:_MOST_KINDS]}
    body = {"version": VERSION, "device": device, "paces": kept}
    mac = {"mac": keys.mac(_purpose(device), canonical(body).encode())} if keys else {}
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=folder, prefix=f".{_file(device)}.", delete=False) as part:
        try:
            json.dump({"body": body, **mac}, part)
            part.flush()
            os.replace(part.name, folder / _file(device))
        except BaseException:
            os.unlink(part.name)
            raise


def _believed(paces: Any) -> dict[str, float]:
    if len(paces) > _MOST_KINDS:
        raise ValueError("it names too many kinds")
    believed = {}
    for kind, pace in paces.items():
        if not _KIND.fullmatch(kind) or isinstance(pace, bool) or not isinstance(pace, int | float):
            raise ValueError(f"{str(kind)[:60]!r} is no kind with a number")
        if not (math.isfinite(pace) and pace > 0):
            raise ValueError(f"{pace} is no factor")
        believed[kind] = _bounded(float(pace))
    return believed


def _bounded(pace: float) -> float:
    return min(MOST, max(1 / MOST, pace))


def _file(device: str) -> str:
    """As ``trials-nvidia-h200.json``."""
    return f"trials-{re.sub(r'[^a-z0-9.]+', '-', device.lower())[:100]}.json"


def _purpose(device: str) -> str:
    return f"trials {device}"
