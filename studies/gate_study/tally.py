"""Trials until enough count, and what they say together."""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable
from typing import Any

from gate_study.study import Trial


def tally(run: Callable[[int], Trial], count: int) -> dict[str, Any]:
    counted: list[Any] = []
    left_out, index = collections.Counter[str](), 0
    while len(counted) < count:
        if index % 100 == 0:
            sys.stderr.write(f"{run.__name__}: {len(counted)} of {count}\n")
        one = run(index)
        index += 1
        if one.counts:
            counted.append(one)
        else:
            left_out[one.kind] += 1
    kinds = collections.Counter(one.kind for one in counted)
    passed = collections.Counter(one.kind for one in counted if one.passed)
    return {"counted": len(counted), "passed": sum(passed.values()), "tried": index, "left_out": dict(left_out),
            "kinds": {kind: {"counted": kinds[kind], "passed": passed[kind]} for kind in sorted(kinds)},
            "metrics": dict(collections.Counter(one.metric for one in counted)),
            "tolerances": dict(collections.Counter(f"{one.tolerance:g}" for one in counted)),
            "heads": dict(collections.Counter("one number" if one.single else "classes" for one in counted)),
            "networks": dict(collections.Counter(one.network for one in counted))}
