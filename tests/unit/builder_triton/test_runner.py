"""All that measures a server runs on the loop that wakes up when it is asked to, not in whole milliseconds."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from enginewright_builder import proving
from enginewright_builder.load import __main__ as by_hand
from enginewright_builder.load import run_on_time
from enginewright_builder.triton.client import HungError


class StoppedError(ValueError):
    """Which the command takes for bad input."""


async def selector_in_use(*arguments: object, **settings: object) -> selectors.BaseSelector:
    return asyncio.get_running_loop()._selector  # type: ignore[attr-defined, no-any-return]


def test_the_loop_sleeps_by_select_whose_timeouts_are_no_whole_milliseconds() -> None:
    assert isinstance(run_on_time(selector_in_use()), selectors.SelectSelector)


def test_what_is_raised_comes_out() -> None:
    async def fails() -> None:
        raise StoppedError

    with pytest.raises(StoppedError):
        run_on_time(fails())


def by_command(folder: Path) -> None:
    by_hand.main(["--url", "localhost:1", "--model", "m"])


def by_a_build(folder: Path) -> None:
    request = SimpleNamespace(device=SimpleNamespace(accelerator="cpu"))
    handed: Any = SimpleNamespace(document=SimpleNamespace(request=request), staging=folder)
    unused: Any = None
    proving.prove_finalists(handed, proving.OwnServers(folder), unused, unused)


@pytest.mark.parametrize(("measure", "module", "inner"), [(by_command, by_hand, "_run"),
                                                          (by_a_build, proving, "_measure")])
def test_each_measurement_is_on_it(measure: Callable[[Path], None], module: Any, inner: str, tmp_path: Path,
                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped once the loop is known: nothing is written, started or sent."""
    seen: list[selectors.BaseSelector] = []

    async def stop(*arguments: object, **settings: object) -> None:
        seen.append(await selector_in_use())
        raise StoppedError

    monkeypatch.setattr(module, inner, stop)
    with contextlib.suppress(StoppedError):
        measure(tmp_path)
    assert [type(one) for one in seen] == [selectors.SelectSelector]


@pytest.mark.parametrize(("fresh", "hangs", "tries"), [(True, 1, 2), (True, 2, 2), (False, 1, 1), (True, 0, 1)])
def test_a_server_of_our_own_that_hangs_is_replaced_once(fresh: bool, hangs: int, tries: int) -> None:
    begun, notes = list[int](), list[str]()
    steps: Any = SimpleNamespace(tracker=SimpleNamespace(note=notes.append))
    servers: Any = SimpleNamespace(fresh=fresh)

    async def work() -> str:
        begun.append(1)
        if len(begun) <= hangs:
            raise HungError("ServerLoadFailed", "model 'm' was not loaded within 240 s")
        return "proven"

    if hangs < tries:
        assert proving._with_another(servers, steps, work) == "proven"
    else:
        with pytest.raises(HungError):
            proving._with_another(servers, steps, work)
    assert len(begun) == tries
    assert notes == ["tritonserver hangs while it loads; another one is started"] * (tries - 1)
