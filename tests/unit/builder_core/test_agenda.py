"""Which trial comes next, as data: no engine is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from enginewright_builder.competition.agenda import MARGIN, Agenda, Plan, Stand
from enginewright_builder.competition.cost import LOAD_SECONDS, Costs, quick_share
from enginewright_builder.competition.experience import experience
from enginewright_builder.competition.promise import Known, Outlook
from enginewright_builder.engines.base import BatchRange, Rung
from enginewright_builder.engines.buckets import bucket_ranges
from enginewright_builder.measure.look import Look

BATCHES = (1, 8, 32)
CONVOLUTIONS = Look(convolution=0.65, rest=0.35, operators=120)
TEXT = Look(product=0.26, attention=0.1, rest=0.64, operators=400)
EVERYTHING = ("tensorrt fp32", "tensorrt tf32", "tensorrt bf16", "tensorrt fp16", "tensorrt fp8", "tensorrt int8",
              "torch fp32", "torch tf32", "torch bf16", "torch fp16", "onnxruntime fp32", "onnxruntime fp16")


def agenda(names: tuple[str, ...] = EVERYTHING, accelerator: str = "gpu", look: Look | None = TEXT) -> Agenda:
    """A leading minus: not possible here."""
    plans = [Plan(rung=Rung(backend=name.lstrip("-").split()[0], precision=name.split()[1],
                            unavailable="not here" if name.startswith("-") else "")) for name in names]
    told = experience(accelerator)
    ranges = bucket_ranges(BATCHES)
    tuned = {plan.name: [Plan(rung=replace(plan.rung, ranges=each), of=plan.name)
                         for each in ((ranges[0],), ranges)]
             for plan in plans if plan.rung.backend == "tensorrt" and not plan.rung.unavailable}
    return Agenda(plans, told, Costs(told, look), tuned)


def stand(times: Mapping[str, tuple[float, ...]] | None = None, *, seconds: float = 240.0,
          refused: tuple[str, ...] = (), tried: tuple[str, ...] = (), look: Look | None = TEXT) -> Stand:
    """``times`` at each batch of what was built so far, all of which passes but the ``refused``."""
    told = {name: dict(zip(BATCHES, each, strict=True)) for name, each in (times or {}).items()}
    known = Known(batches=BATCHES, look=look, times=told, passing=frozenset({*told} - {*refused}))
    return Stand(known=known, seconds=seconds, left=seconds + 60, tried=frozenset({*told, *tried}),
                 refused=frozenset(refused))


def following(agenda: Agenda, at: Stand) -> str:
    plan = agenda.next(at)
    return plan.name if plan else ""


@pytest.mark.parametrize(("names", "accelerator", "first"), [
    (EVERYTHING, "gpu", "tensorrt fp16"),
    (("torch fp32", "torch fp16", "onnxruntime fp16"), "gpu", "torch fp16"),
    (("-tensorrt fp16", "onnxruntime fp16", "onnxruntime fp32"), "gpu", "onnxruntime fp16"),
    (("onnxruntime int8-dynamic", "torch fp32", "onnxruntime fp32"), "cpu", "onnxruntime fp32"),
], ids=["all", "no TensorRT", "ONNX Runtime alone", "cpu"])
def test_the_most_promising_is_first_and_on_a_cpu_the_safe_one(names: tuple[str, ...], accelerator: str,
                                                               first: str) -> None:
    assert following(agenda(names, accelerator), stand()) == first


def test_the_cheapest_safe_rung_follows_where_the_first_is_refused_however_little_time_is_left() -> None:
    at = stand({"tensorrt fp16": (1.0, 2.0, 4.0)}, refused=("tensorrt fp16",), seconds=-30.0)
    assert following(agenda(), at) == "onnxruntime fp32"


def test_the_first_is_begun_as_long_as_there_is_time_at_all_and_no_other_is() -> None:
    assert following(agenda(), stand(seconds=-50.0)) == "onnxruntime fp16"
    assert following(agenda(), stand(seconds=-60.0)) == ""
    assert following(agenda(), stand({"tensorrt fp16": (1.0, 2.0, 4.0)}, seconds=3.0)) == ""


def test_what_was_made_beside_the_first_comes_before_the_safe_one() -> None:
    one = agenda()
    package = Rung(backend="torch", precision="fp16")
    one.costs.engine_left = lambda rung, usual: 0.0 if rung == package else None
    stopped = stand(tried=("tensorrt fp16",), seconds=-5.0)
    assert following(one, stopped) == "torch fp16"
    refused = stand({"torch fp16": (1.0, 2.0, 4.0)}, tried=("tensorrt fp16",), refused=("torch fp16",), seconds=20.0)
    assert following(one, refused) == "onnxruntime fp32"


def test_packages_are_prepared_in_the_order_of_what_each_adds_to_those_before_it() -> None:
    one = agenda(look=CONVOLUTIONS)
    wide = one.plans[EVERYTHING.index("torch fp16")]
    one.tuned[wide.name] = [Plan(rung=replace(wide.rung, ranges=(each,)), of=wide.name)
                            for each in bucket_ranges(BATCHES)]

    def ahead(*given: str) -> list[str]:
        asked = one.ahead(stand(look=CONVOLUTIONS), lambda rung: rung.backend == "torch", given)
        return [plan.name for plan in asked]

    first, *others = ahead("tensorrt fp16")
    assert first == "torch fp16"
    assert {"torch fp16 @1", "torch fp16 @8"} & {*others}
    assert "torch fp32" not in others  # slower wherever FP16 is there
    assert "torch fp16" not in ahead("tensorrt fp16", "torch fp16")
    assert not one.ahead(stand(look=CONVOLUTIONS), lambda rung: False, {"tensorrt fp16"})


def test_a_model_of_convolutions_tries_int8_where_a_text_model_tunes_fp16() -> None:
    times = {"tensorrt fp16": (0.5, 0.6, 1.1)}
    assert following(agenda(look=CONVOLUTIONS), stand(times, look=CONVOLUTIONS, seconds=300)) == "tensorrt int8"
    assert following(agenda(), stand(times, seconds=300)).startswith("tensorrt fp16 @")


def test_tensorrts_engines_for_single_batches_come_before_pytorchs_package() -> None:
    assert following(agenda(), stand({"tensorrt fp16": (0.5, 0.6, 1.1)}, seconds=300)) == "tensorrt fp16 @1"
    # Here tuning gained nothing, so that another engine is worth more than other batches.
    gained = {"tensorrt fp16": (0.5, 0.6, 1.1), "tensorrt fp16 @1": (0.5, 9.0, 9.0)}
    assert following(agenda(), stand(gained, seconds=300)) == "torch fp16"


def test_what_tuning_gained_in_this_build_counts_more_than_what_it_gained_in_others() -> None:
    ahead = {"tensorrt fp16": (1.0, 2.0, 4.0), "tensorrt bf16": (1.0, 2.0, 4.0)}
    before = {plan.name: promise for plan, promise in agenda().left(stand(ahead))}
    after = {plan.name: promise for plan, promise in agenda().left(stand(
        {**ahead, "tensorrt fp16 @1": (1.0, 9.0, 9.0)}))}
    assert before["tensorrt bf16 @1"].factor > 1.15
    assert after["tensorrt bf16 @1"].factor < 1.08


def test_a_refused_one_is_mended_where_it_would_be_much_faster_and_not_where_it_would_lose() -> None:
    names = ("tensorrt fp16", "tensorrt int8", "tensorrt fp32")
    fast = stand({"tensorrt fp16": (1.0, 2.0, 4.0), "tensorrt int8": (0.5, 1.0, 2.0)}, refused=("tensorrt int8",),
                 tried=("tensorrt fp32", "tensorrt fp16 @1", "tensorrt fp16 @1+8+32"))
    assert following(agenda(names), fast) == "tensorrt int8 (kept the worst layers in higher precision)"
    slow = stand({"tensorrt fp16": (1.0, 2.0, 4.0), "tensorrt int8": (1.0, 2.0, 4.0),
                  "tensorrt fp16 @1+8+32": (0.8, 1.8, 3.9)}, refused=("tensorrt int8",), tried=("tensorrt fp32",))
    assert following(agenda(names), slow) == ""


def test_where_fp16_overflows_no_other_engine_tries_it_before_what_has_the_range() -> None:
    one = agenda(look=CONVOLUTIONS)
    times = {"tensorrt fp16": (0.4, 0.8, 2.0), "onnxruntime fp32": (2.0, 5.0, 16.0)}
    at = stand(times, refused=("tensorrt fp16",), look=CONVOLUTIONS)
    after = replace(at, known=replace(at.known, overflown=("tensorrt fp16",)))
    first = following(one, after)
    assert first in ("tensorrt tf32", "tensorrt fp16 (kept the worst layers in higher precision)")
    tried = replace(after, tried=after.tried | {first})
    assert following(one, tried) not in {"torch fp16", "onnxruntime fp16", "tensorrt int8", "tensorrt fp8"}
    ahead = [plan.name for plan in one.ahead(after, lambda rung: rung.backend == "torch", {first})]
    assert set(ahead[:2]) == {"torch tf32", "torch bf16"}


def test_a_mended_one_is_worth_what_is_tuned_from_it_too() -> None:
    names = ("tensorrt fp16", "tensorrt tf32")
    times = {"tensorrt fp16": (0.5, 0.6, 1.0), "tensorrt tf32": (0.42, 0.51, 0.87)}
    tried = ("tensorrt tf32 @1", "tensorrt tf32 @1+8+32")
    at = stand(times, refused=("tensorrt fp16",), look=CONVOLUTIONS, tried=tried)
    at = replace(at, known=replace(at.known, overflown=("tensorrt fp16",)))
    mended = "tensorrt fp16 (kept the worst layers in higher precision)"
    alone = agenda(names, look=CONVOLUTIONS)
    alone.tuned = {name: plans for name, plans in alone.tuned.items() if name != "tensorrt fp16"}
    assert following(alone, at) != mended
    with_tuned = agenda(names, look=CONVOLUTIONS)
    assert following(with_tuned, at) == mended
    later = replace(at, tried=at.tried | {mended})
    assert not following(with_tuned, later).startswith("tensorrt fp16 @")


def test_packages_of_the_precision_that_is_prepared_come_before_those_of_others(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another precision promises more, as long as it is unknown whether the first passes."""
    one = agenda(("tensorrt fp16", "tensorrt int8", "torch bf16", "torch fp16"), look=CONVOLUTIONS)
    one.tuned["torch fp16"] = [Plan(rung=Rung(backend="torch", precision="fp16", ranges=(each,)), of="torch fp16")
                               for each in bucket_ranges(BATCHES)]
    monkeypatch.setattr(Outlook, "order", lambda self, given: [each for each in self.trials if each.name not in given])

    def ahead(*given: str, tried: tuple[str, ...] = ()) -> list[str]:
        at = stand(dict.fromkeys(tried, (1.0, 2.0, 4.0)), refused=tried, look=CONVOLUTIONS)
        return [plan.name for plan in one.ahead(at, lambda rung: rung.backend == "torch", given)]

    assert ahead("tensorrt fp16", "torch fp16")[:2] == ["torch fp16 @1", "torch fp16 @8"]
    assert ahead("tensorrt fp16", "torch fp16")[-1] == "torch bf16"
    assert ahead("tensorrt fp16")[0] == "torch bf16"  # nothing of the engine is prepared yet
    assert ahead("tensorrt int8", tried=("torch fp16",))[0] == "torch bf16"  # refused


def test_packages_for_single_batches_are_prepared_whatever_they_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    """They cost the device nothing, and how much they bring differs by the model."""
    one = agenda(("tensorrt fp16", "torch bf16", "torch fp16"), look=CONVOLUTIONS)
    one.tuned["torch fp16"] = [Plan(rung=Rung(backend="torch", precision="fp16", ranges=(each,)), of="torch fp16")
                               for each in bucket_ranges(BATCHES)]
    promising = ("torch fp16", "torch fp16 @32", "torch bf16")
    monkeypatch.setattr(Outlook, "order", lambda self, given: [
        each for name in promising for each in self.trials if each.name == name and name not in given])
    asked = one.ahead(stand(look=CONVOLUTIONS), lambda rung: rung.backend == "torch", ("tensorrt fp16",))
    assert [plan.name for plan in asked] == [
        "torch fp16", "torch fp16 @32", "torch fp16 @1", "torch fp16 @8", "torch bf16"]


def test_what_tuning_gained_at_one_batch_it_likely_gains_in_part_at_others() -> None:
    one = agenda(("torch fp16",), look=CONVOLUTIONS)
    one.tuned["torch fp16"] = [Plan(rung=Rung(backend="torch", precision="fp16", ranges=(each,)), of="torch fp16")
                               for each in bucket_ranges(BATCHES)]

    def promised(at_32: float) -> float:
        built = stand({"torch fp16": (1.0, 2.0, 4.0), "torch fp16 @32": (0.0, 0.0, at_32)}, look=CONVOLUTIONS)
        return next(promise.factor for plan, promise in one.left(built) if plan.name == "torch fp16 @1")

    assert promised(3.3) > 1.08
    assert promised(4.0) == promised(4.5) < 1.04  # as before where it gained nothing


def test_what_the_gate_refused_of_one_engine_is_likely_refused_of_another() -> None:
    one = agenda(("tensorrt bf16", "torch bf16", "tensorrt tf32"), look=CONVOLUTIONS)
    at = stand({"tensorrt bf16": (0.5, 0.6, 1.0)}, look=CONVOLUTIONS)
    assert following(one, replace(at, known=replace(at.known, passing=()))) == "tensorrt tf32"


def test_an_engine_tuned_from_a_refused_one_is_never_tried() -> None:
    one = agenda(("tensorrt int8",))
    at = stand({"tensorrt int8": (0.5, 1.0, 2.0)}, refused=("tensorrt int8",), tried=(
        "tensorrt int8 (kept the worst layers in higher precision)",))
    assert following(one, replace(at, refused=frozenset())) == ""


def test_what_was_not_reached_is_named_with_what_it_could_have_brought() -> None:
    left = {plan.name: str(promise) for plan, promise in agenda().left(stand(
        {"tensorrt fp16": (0.8, 1.0, 2.0)}, seconds=5.0))}
    assert {"tensorrt int8", "torch fp16", "tensorrt fp16 @1"} <= set(left)
    assert left["tensorrt int8"].startswith("could bring up to 1.")
    assert "at batch" in left["tensorrt int8"]
    assert "would take about" in left["tensorrt int8"]
    assert left["tensorrt fp32"].startswith("could bring next to nothing")
    assert not any(name.startswith("tensorrt int8 @") for name in left)  # nobody knows whether int8 passes


class TestCosts:
    RUNG = Rung(backend="tensorrt", precision="fp16")

    def test_what_this_build_took_corrects_what_is_expected_of_the_same_engine(self) -> None:
        costs = Costs(experience("gpu"), TEXT)
        other = Rung(backend="tensorrt", precision="bf16")
        before = costs.expected(other)
        costs.record(self.RUNG, (), 120.0, 10.0, built=True)
        assert costs.expected(self.RUNG) == pytest.approx(110.0)
        assert costs.expected(other) > 1.4 * before

    def test_a_graph_is_paid_for_once(self) -> None:
        costs = Costs(experience("gpu"), TEXT)
        int8 = Rung(backend="tensorrt", precision="int8")
        costs.record(int8, (), 150.0, 90.0, built=True)
        assert costs.expected(int8) == pytest.approx(60.0)
        assert costs.expected(int8, new_graph=True) == pytest.approx(150.0, rel=0.1)

    def test_a_graph_that_is_written_beside_the_builds_costs_what_is_left_of_it(self) -> None:
        int8 = Rung(backend="tensorrt", precision="int8")
        whole = Costs(experience("gpu"), TEXT).expected(int8)
        beside = Costs(experience("gpu"), TEXT, graph_left=lambda backend, precision, usual: 5.0).expected(int8)
        assert 40 < whole - beside < 90

    def test_an_engine_that_is_made_beside_the_builds_costs_what_is_left_of_it(self) -> None:
        wide, one = Rung(backend="torch", precision="fp16"), Rung(backend="torch", precision="fp16", ranges=(
            BatchRange(low=1, best=1, high=1),))
        alone = Costs(experience("gpu"), TEXT)
        beside = Costs(experience("gpu"), TEXT, engine_left=lambda rung, usual: {wide: usual / 2, one: 0.0}.get(rung))
        assert beside.expected(wide) == pytest.approx(alone.expected(wide) / 2 + LOAD_SECONDS)
        assert beside.expected(one) == LOAD_SECONDS
        assert beside.expected(self.RUNG) == alone.expected(self.RUNG)
        assert [beside.made(rung) for rung in (wide, one, self.RUNG)] == [False, True, False]

    def test_earlier_builds_are_believed_within_bounds(self) -> None:
        usual = Costs(experience("gpu"), TEXT).expected(self.RUNG)
        warm = Costs(experience("gpu"), TEXT, {"tensorrt fp16": 0.1}).expected(self.RUNG)
        absurd = Costs(experience("gpu"), TEXT, {"tensorrt fp16": 1e9}).expected(self.RUNG)
        assert warm < 0.5 * usual
        assert absurd < 9 * usual

    def test_one_that_failed_at_once_does_not_make_its_engine_quick(self) -> None:
        costs = Costs(experience("gpu"), TEXT)
        before = costs.expected(self.RUNG)
        costs.record(self.RUNG, (), 0.5, 0.0, built=False)
        assert costs.expected(self.RUNG) == before


def test_what_no_longer_fits_into_the_time_is_built_quickly_and_once() -> None:
    one = agenda(("tensorrt fp16",))
    times = {"tensorrt fp16": (0.5, 0.6, 1.1)}
    rung = Rung(backend="tensorrt", precision="fp16", ranges=(bucket_ranges(BATCHES)[0],))
    full = Plan(rung=rung, of="tensorrt fp16")
    least = MARGIN * one.seconds(full, stand(times))
    assert following(one, stand(times, seconds=least)) == "tensorrt fp16 @1"
    assert following(one, stand(times, seconds=least - 1)) == "tensorrt fp16 @1 quick"
    built = {**times, "tensorrt fp16 @1 quick": (0.4, 9.0, 9.0)}
    assert following(one, stand(built, seconds=least / MARGIN - 1)) == ""
    assert "tensorrt fp16 @1 quick" not in {plan.name for plan, _ in one.left(stand(built, seconds=1))}


def test_engines_are_tuned_from_a_quick_one_as_from_a_full_one() -> None:
    one = agenda(("tensorrt fp16", "tensorrt int8"), look=CONVOLUTIONS)
    built = {"tensorrt fp16": (0.5, 0.6, 1.1), "tensorrt int8 quick": (0.35, 0.45, 0.7)}
    tried = ("tensorrt fp16 @1", "tensorrt fp16 @1+8+32", "tensorrt int8")
    assert following(one, stand(built, seconds=150, look=CONVOLUTIONS, tried=tried)).startswith("tensorrt int8 @1")


def test_an_engine_that_has_no_quick_build_is_left_out_as_before() -> None:
    one = agenda(("torch fp16", "onnxruntime fp16"))
    assert following(one, stand({"onnxruntime fp16": (1.0, 2.0, 4.0)}, seconds=15.0)) == ""


def test_a_quick_build_takes_a_part_of_the_time_and_the_whole_gate() -> None:
    told = experience("gpu")
    costs = Costs(told, TEXT)
    full = Rung(backend="tensorrt", precision="fp16", ranges=(bucket_ranges(BATCHES)[1],))
    gate, quick = told.gate_seconds(TEXT), replace(full, quick=True)
    graph = told.graph_seconds("tensorrt", "fp16", TEXT)
    share = quick_share("tensorrt", TEXT)
    assert costs.expected(quick) - graph - gate == pytest.approx(share * (costs.expected(full) - graph - gate))
    # One that took twice as long as expected says the same of full ones.
    costs.record(quick, (), 2 * (costs.expected(quick) - graph), 0.0, built=True)
    assert costs.paces == {"tensorrt fp16 @one": pytest.approx(2.0)}


def test_a_quick_build_saves_the_more_the_more_of_the_model_are_convolutions() -> None:
    assert quick_share("tensorrt", CONVOLUTIONS) < 0.5 < 0.7 < quick_share("tensorrt", TEXT) < 1.0
    assert quick_share("tensorrt", None) == quick_share("tensorrt", TEXT)
    assert quick_share("torch", CONVOLUTIONS) == 1.0


def test_what_a_quick_build_timed_makes_no_later_build_shorter() -> None:
    ranges = bucket_ranges(BATCHES)
    single, several = (Rung(backend="tensorrt", precision="fp16", ranges=one) for one in ((ranges[1],), ranges))

    def after(built: Rung) -> float:
        costs = Costs(experience("gpu"), TEXT)
        costs.record(built, (), costs.expected(built), costs.expected(built) / 2, built=True)
        costs.paces.clear()
        return costs.expected(several)

    assert after(single) < after(replace(single, quick=True))
