"""What many tests begin with is made once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Made = TypeVar("Made")


def once(make: Callable[Parameters, Made]) -> Callable[Parameters, Made]:
    """``make``, which gives the same for the same arguments, called once for each; every caller gets a copy of its own.
    Arguments are told apart by what they print."""
    made: dict[str, Made] = {}

    @wraps(make)
    def copied(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Made:
        key = repr((args, sorted(kwargs.items())))
        if key not in made:
            made[key] = make(*args, **kwargs)
        return copy.deepcopy(made[key])

    return copied
