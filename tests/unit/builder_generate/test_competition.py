"""Which configuration ships, by made-up loads: candidates, those together that gained, settings, and the default once
more at the end."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.candidates import Candidate
from enginewright_builder.generate.comparing import Yardstick
from enginewright_builder.generate.competition import candidates_of, settings_of
from enginewright_builder.generate.figures import Objective, Spread, figures
from enginewright_builder.generate.gate import Judgement, Loss
from enginewright_builder.generate.shipping import Result, chosen, judged
from enginewright_builder.generate.speculation import Speculated
from enginewright_builder.generate.sweep import Aim, Point, gains, point
from enginewright_builder.generate.trial import Known, Trial

BASE = ServerArguments(dtype="float32")
PASSED = Judgement(prompts=20, places=60, disagreement=Loss(value=0, floor=0, beyond=0, high=0.1),
                   divergence=Loss(value=0, floor=0, beyond=0, high=0.1))
NAMES = {"grams": {"speculative_tokens": 4}, "cache": {"kv_cache_dtype": "fp8"},
         **{f"draft small, {tokens} tokens": {"draft": "small", "speculative_tokens": tokens} for tokens in (2, 4)}}
# Of four tokens at once the last two are never taken, and a round takes as long as two steps of the model alone.
WASTED = Speculated(rounds=100, proposed=400, accepted=150, at=(90, 60, 0, 0))

CHECKPOINTS = ("awq", "gptq")


def at(value: float, *, meets: bool = True, tpot_ms: float = 10.0, guessed: Speculated | None = None) -> Point:
    nothing = point(64, figures([], begin=0.0, end=1.0), Aim(objective=Objective()))
    times = dataclasses.replace(nothing.figures, tpot_ms=Spread(p50=tpot_ms, p90=tpot_ms, p99=tpot_ms))
    return dataclasses.replace(nothing, figures=times, value=value, meets=meets, speculated=guessed)


def candidate(name: str) -> Candidate:
    return Candidate(name=name, precision="fp32", arguments=dataclasses.replace(BASE, **NAMES.get(name, {})),  # type: ignore[arg-type]
                     checkpoint=name if name in CHECKPOINTS else "")


class Bench:
    """Answers with the loads ``values`` by name, 10 where there is none; ``again`` is that of the default at the end,
    and ``new`` are those that are put on once more, where they come to something else."""

    load_seconds = 1.0

    def __init__(self, values: Mapping[str, float], again: float = 10.0, left: float = 100.0,
                 stop_when: str = "budgetSpent", ttft_ms: float = 0.0, late: Collection[str] = (),
                 lucky: Collection[str] = (), confirm_seconds: float = 100.0,
                 new: Mapping[str, float] | None = None, requests: int = 400) -> None:
        self.values, self.at_end, self.left, self.tried = values, again, left, list[str]()
        self.stop_when, self.aim = stop_when, Aim(objective=Objective(ttft_ms=ttft_ms))
        self.late, self.lucky, self.confirm_seconds = late, lucky, confirm_seconds
        self.new, self.requests = new or {}, requests

    async def reference(self, one: Candidate) -> tuple[Trial, Known]:
        return self._trial(one), Known(yardstick=Yardstick(records=(), floor=(), tolerance=0.1), version="1",
                                       seconds=1.0, again=2.0)

    async def trial(self, one: Candidate, known: Known, rival: Point | None = None) -> Trial:
        self.tried.append(one.name)
        trial = self._trial(one)
        if rival is not None and not gains(trial.best, rival):
            return dataclasses.replace(trial, verdict="Slower", judgement=None)
        return trial

    async def loads(self, one: Candidate, load: Point) -> tuple[Point, ...]:
        self.tried.append(f"{one.name} again")
        return (at(self.at_end),)

    async def again(self, one: Candidate, load: Point, seconds: float) -> Point:
        """Of ``requests``; ``lucky`` ones seemed to keep the objective, and each keeps it with one in flight. Where
        there are none, the time is over."""
        self.tried.append(f"{one.name} once more, {load.concurrency} in flight")
        return dataclasses.replace(load, again=self.requests, value=self.new.get(one.name, load.value),
                                   meets=one.name not in self.lucky or load.concurrency == 1) if self.requests else load

    def _trial(self, one: Candidate) -> Trial:
        value = self.values.get(one.name, 10.0)
        load = at(value, meets=one.name not in self.late)
        if one.arguments.draft:
            load = at(value, tpot_ms=8.0, guessed=WASTED)
        return Trial(name=one.name, precision=one.precision, arguments=one.arguments, verdict="Passed",
                     points=(dataclasses.replace(load, concurrency=1, value=0.1), load), judgement=PASSED,
                     start_seconds=1.0, checkpoint=one.checkpoint)


async def competed(bench: Any, *listed: str) -> Result:
    def silent(fraction: float, text: str) -> None: ...

    trials, known = await candidates_of(bench, candidate("fp32"), [candidate(one) for one in listed], silent)
    return await settings_of(bench, trials, known, longest=64, gpu=False, progress=silent)


async def test_what_gains_alone_is_tried_together_and_then_with_other_settings() -> None:
    together = "grams + cache"
    bench = Bench({"grams": 12, "cache": 11, together: 14, f"{together}, 16 requests at once": 15})
    result = await competed(bench, "grams", "cache")
    assert result.shipped.name == f"{together}, 16 requests at once"
    assert result.shipped.arguments == dataclasses.replace(BASE, speculative_tokens=4, kv_cache_dtype="fp8",
                                                           max_num_seqs=16)
    assert result.confirmed
    assert bench.tried[:3] == ["grams", "cache", together]
    # What comes after a setting that stayed is tried on top of it.
    assert bench.tried[-3:] == [f"{together}, 16 requests at once, no prefix cache", "fp32 again",
                                f"{together}, 16 requests at once once more, 64 in flight"]
    assert {one.name: one.verdict for one in result.trials}[f"{together}, 8192 tokens a step"] == "Slower"


@pytest.mark.parametrize(("again", "shipped"), [(10.0, "grams"), (11.9, "fp32"), (13.0, "fp32")])
async def test_the_default_is_measured_again_and_what_ships_is_better_than_both(again: float, shipped: str) -> None:
    result = await competed(Bench({"grams": 12}, again=again), "grams")
    found = {one.name: one.verdict for one in result.trials}
    assert result.shipped.name == shipped
    assert found[shipped] == "Shipped"
    assert list(found.values()).count("Shipped") == 1
    assert result.default.value == max(10.0, again)
    assert result.shipped.best.value >= result.default.value


async def test_the_default_ships_where_there_is_no_time_to_measure_it_again() -> None:
    result = await competed(Bench({"grams": 12}, left=1.0), "grams")
    assert result.shipped.name == "fp32"
    assert not result.confirmed


async def test_where_nothing_gains_the_default_ships_and_is_not_measured_again() -> None:
    bench = Bench({"grams": 10.2})
    result = await competed(bench, "grams")
    assert result.shipped.name == "fp32"
    assert "fp32 again" not in bench.tried
    assert next(one for one in result.trials if one.name == "grams").reason.endswith(
        "less than 3% better than fp32 by default")


def test_what_keeps_the_objective_wins_over_what_does_not() -> None:
    def trial(name: str, one: Point) -> Trial:
        return Trial(name=name, precision="p", arguments=BASE, verdict="Passed", points=(one,), judgement=PASSED)

    default, fast, keeps = trial("d", at(50, meets=False)), trial("f", at(90, meets=False)), trial("k", at(5))
    assert chosen([default, fast, keeps]) is keeps
    assert chosen([keeps, fast, default]) is keeps
    found = judged([default, fast, keeps], keeps, Aim(objective=Objective()))
    assert [one.verdict for one in found] == ["Passed", "Passed", "Shipped"]
    refused = dataclasses.replace(keeps, verdict="AccuracyRefused", points=())
    assert chosen([default, refused]) is default


async def test_settings_are_tried_around_the_checkpoint_that_leads() -> None:
    """The better of two goes together with what else gained: no server has the weights of both."""
    bench = Bench({"awq": 12, "gptq": 13, "grams": 11, "gptq + grams": 15, "gptq + grams, 16 requests at once": 17})
    result = await competed(bench, "awq", "gptq", "grams")
    assert "awq + gptq + grams" not in bench.tried
    assert (result.shipped.name, result.shipped.checkpoint) == ("gptq + grams, 16 requests at once", "gptq")
    assert result.trials[0].checkpoint == ""


async def test_a_draft_is_tried_once_more_with_as_many_tokens_as_its_own_measurement_says() -> None:
    """Two places of four were worth their time. Of what speculates the best one goes together with what else gained."""
    fewer = "draft small, 2 tokens"
    bench = Bench({"draft small, 4 tokens": 11, fewer: 13, "grams": 12, "cache": 11, f"{fewer} + cache": 15})
    result = await competed(bench, "draft small, 4 tokens", "grams", "cache")
    assert bench.tried[:5] == ["draft small, 4 tokens", fewer, "grams", "cache", f"{fewer} + cache"]
    assert (result.shipped.arguments.draft, result.shipped.arguments.speculative_tokens) == ("small", 2)


async def test_the_load_of_a_draft_says_what_was_taken() -> None:
    result = await competed(Bench({"draft small, 2 tokens": 13}), "draft small, 2 tokens")
    assert "150 of 400 proposed tokens taken" in result.shipped.reason


async def test_with_the_objective_kept_no_more_than_the_users_own_are_tried_where_that_is_asked_for() -> None:
    content: dict[str, Any] = {"stop_when": "objectiveMet", "ttft_ms": 500.0}
    draft = "draft small, 4 tokens"
    bench = Bench({"grams": 20, "awq": 12}, **content)
    result = await competed(bench, "awq", draft, "grams", "cache")
    assert bench.tried == ["fp32 once more, 64 in flight", "awq", draft, "fp32 again", "awq once more, 64 in flight"]
    assert result.shipped.name == "awq"
    skipped = {one.name: one.reason for one in result.trials if one.verdict == "Skipped"}
    assert set(skipped) == {"grams", "cache"}
    assert "stopWhen is objectiveMet, and fp32 keeps" in skipped["grams"]
    for others in ({**content, "ttft_ms": 0.0}, {**content, "stop_when": "budgetSpent"}):
        bench = Bench({"grams": 20}, **others)
        await competed(bench, "grams")
        assert "grams" in bench.tried


async def test_it_goes_on_until_one_keeps_the_objective() -> None:
    bench = Bench({}, stop_when="objectiveMet", ttft_ms=500.0, late=("fp32",))
    await competed(bench, "grams", "cache")
    assert bench.tried == ["grams", "grams once more, 64 in flight", "fp32 again", "fp32 once more, 64 in flight"], (
        "at the end it kept it, too")


@pytest.mark.parametrize(("content", "tried"), [
    # It was lucky: its new requests miss the objective, and so do those of the next.
    ({"lucky": ("fp32", "grams")}, ["fp32 once more, 64 in flight", "grams", "grams once more, 64 in flight", "cache"]),
    # Its new requests keep it, and are too few to say so.
    ({"requests": 200}, ["fp32 once more, 64 in flight", "grams", "grams once more, 64 in flight", "cache"]),
    ({"lucky": ("fp32",)}, ["fp32 once more, 64 in flight", "grams", "grams once more, 64 in flight"])])
async def test_it_stops_only_at_an_objective_that_is_kept_by_requests_that_did_not_choose(
        content: dict[str, Any], tried: list[str]) -> None:
    """Of three tries one is left for what ships."""
    bench = Bench({"grams": 12}, stop_when="objectiveMet", ttft_ms=500.0, **content)
    result = await competed(bench, "grams", "cache")
    assert bench.tried[:len(tried)] == tried
    skipped = [one.name for one in result.trials if one.verdict == "Skipped"]
    assert skipped == ([] if "cache" in tried else ["cache"])
    assert sum("once more" in one for one in bench.tried) <= 3


async def test_the_time_that_what_ships_takes_is_left_for_it() -> None:
    bench = Bench({"grams": 12}, stop_when="objectiveMet", left=2.0, **OBJECTIVE)
    await competed(bench, "grams")
    assert bench.tried[0] == "grams", "the default's load was not put on once more before"


async def test_a_setting_that_keeps_the_objective_ends_the_settings() -> None:
    """It is the first to keep it: nothing that was tried before does."""
    bench = Bench({}, stop_when="objectiveMet", late=("fp32", "grams"), **OBJECTIVE)
    await competed(bench, "grams")
    first = "fp32, 8192 tokens a step"
    assert bench.tried[:4] == ["grams", first, f"{first} once more, 64 in flight", "fp32 again"]


OBJECTIVE: dict[str, Any] = {"ttft_ms": 500.0}


@pytest.mark.parametrize("objective", [OBJECTIVE, {}])
async def test_figures_and_gain_are_of_a_load_that_did_not_choose_what_ships(objective: dict[str, Any]) -> None:
    bench = Bench({"grams": 12}, again=10.5, new={"grams": 11}, **objective)
    result = await competed(bench, "grams")
    assert bench.tried[-2:] == ["fp32 again", "grams once more, 64 in flight"]
    assert (result.shipped.best.again, result.shipped.best.value, result.gain) == (400, 11, round(11 / 10.5, 3))
    assert result.shipped.best in result.shipped.points
    assert "of 400 requests" in result.shipped.reason
    assert ("missed the objective" in result.shipped.reason) is bool(objective)
    assert "of 400 requests" not in result.trials[0].reason


async def test_what_serves_no_better_when_it_is_measured_once_more_does_not_ship() -> None:
    """It led by luck. The next best is better than the default by a new load, too."""
    bench = Bench({"grams": 14, "cache": 12, "grams + cache": 9}, new={"grams": 10.1})
    result = await competed(bench, "grams", "cache")
    assert bench.tried[-2:] == ["grams once more, 64 in flight", "cache once more, 64 in flight"]
    assert (result.shipped.name, result.gain) == ("cache", 1.2)
    led = next(one for one in result.trials if one.name == "grams")
    assert (led.verdict, led.best.value) == ("Slower", 10.1)
    assert led.reason.endswith("less than 3% better than fp32 by default")


async def test_the_default_ships_where_no_one_serves_better_once_more() -> None:
    bench = Bench({"grams": 14, "cache": 12, "grams + cache": 9}, new={"grams": 10, "cache": 10})
    result = await competed(bench, "grams", "cache")
    assert bench.tried[-1] == "fp32 once more, 64 in flight"
    assert (result.shipped.name, result.gain, result.shipped.best.again) == ("fp32", 1.0, 400)


async def test_the_default_ships_where_no_time_is_left_to_measure_what_leads_once_more() -> None:
    result = await competed(Bench({"grams": 12}, requests=0), "grams")
    assert (result.shipped.name, result.gain, result.shipped.best.again) == ("fp32", 1.0, 0)


async def test_the_next_best_is_tried_where_the_chosen_one_was_lucky() -> None:
    """Its other loads are none of those that serve better than the default."""
    bench = Bench({"grams": 12, "cache": 11, "grams + cache": 9}, **OBJECTIVE, lucky=("grams",))
    result = await competed(bench, "grams", "cache")
    assert bench.tried[-2:] == ["grams once more, 64 in flight", "cache once more, 64 in flight"]
    assert (result.shipped.name, result.shipped.best.again) == ("cache", 400)
    missed = next(one for one in result.trials if one.name == "grams")
    assert [one.meets for one in missed.points if one.concurrency == 64] == [False]


async def test_after_three_that_were_lucky_the_best_of_them_ships_and_misses_the_objective() -> None:
    bench = Bench({"grams": 14, "cache": 12, "more": 11}, **OBJECTIVE, lucky=("grams", "cache", "fp32"))
    result = await competed(bench, "grams", "cache")
    assert [one for one in bench.tried if "once more" in one] == [
        f"{name} once more, 64 in flight" for name in ("grams", "cache", "fp32")]
    assert (result.shipped.name, result.shipped.best.meets, result.shipped.best.again) == ("grams", False, 400)


async def test_a_default_that_leads_is_measured_once_more_itself() -> None:
    bench = Bench({}, **OBJECTIVE)
    result = await competed(bench, "grams")
    assert bench.tried[-1] == "fp32 once more, 64 in flight"
    assert "fp32 again" not in bench.tried
    assert result.default is result.shipped.best


async def test_without_time_one_is_measured_once_more() -> None:
    bench = Bench({"grams": 12}, **OBJECTIVE, lucky=("grams",), confirm_seconds=0.0)
    result = await competed(bench, "grams")
    assert [one for one in bench.tried if "once more" in one] == ["grams once more, 64 in flight"]
    assert (result.shipped.name, result.shipped.best.meets) == ("grams", False)
