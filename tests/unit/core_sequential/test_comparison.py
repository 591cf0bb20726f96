"""Does noise promote or block? Made-up traffic, seeded, looked at again and again (``support/traffic.py``)."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections import deque
from dataclasses import replace

import pytest

from enginewright.core.comparison import Limits, Question, compare, fails_more, proven_worse
from enginewright.core.comparison.latency import ALPHA, Tail
from enginewright.core.reasons import Reason
from enginewright.core.signals import ProbeResults, Round, SignalWindow, Traffic
from support.traffic import AGREEING, QUESTION, Load, rounds, watch

RUNS = 100
LONG = 12 * 60  # seconds: enough minutes to tell tails apart
LOADS = {
    "plain": Load(),
    "probes only": Load(rate=4, tail=0.3),
    "thin traffic": Load(rate=2),
    "busy": Load(rate=120, weather=0.5),
    "three stable replicas": Load(replicas=3),
    "five stable replicas, heavy tail": Load(replicas=5, tail=1.5, rate=8),
    "a third of the load": Load(share=0.3, replicas=2),
    "twice the load, heavy tail": Load(share=2.5, rate=8, tail=1.5),
    "replicas drift apart": Load(own=0.25, memory=0.8),
    "very heavy tail": Load(tail=2.0, rate=12),
    "stalls": Load(stalls=0.03),
    "clients' bad requests": Load(errors=0.05),
}


@pytest.mark.study
@pytest.mark.parametrize("name", LOADS)
def test_twice_as_slow_is_rolled_back_a_hundred_times_of_a_hundred(name: str) -> None:
    found = [watch(replace(LOADS[name], slower=2.0), seed, seconds=310) for seed in range(RUNS)]
    assert [answer.verdict for answer in found] == ["worse"] * RUNS
    assert statistics.median(answer.seconds for answer in found) < 100


@pytest.mark.study
@pytest.mark.parametrize("name", LOADS)
def test_as_fast_is_promoted_ninety_nine_times_of_a_hundred(name: str) -> None:
    found = [watch(LOADS[name], seed, seconds=310) for seed in range(RUNS)]
    assert sum(answer.verdict == "good" for answer in found) >= 99
    assert statistics.median(answer.seconds for answer in found) < 300


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_one_that_fails_more_is_rolled_back(share: float) -> None:
    load = Load(errors=0.02, candidate_errors=0.1, share=share)
    found = [watch(load, seed, seconds=310) for seed in range(RUNS)]
    assert [answer.reason for answer in found] == [Reason.FAILED_INFERENCES] * RUNS


def test_one_that_fails_always_is_rolled_back_at_once() -> None:
    answer = watch(Load(candidate_errors=1.0), 1, every=1)
    assert answer.reason == Reason.FAILED_INFERENCES
    assert answer.seconds <= 4


def window(*, seconds: int = 40, slower: float = 1.0, probes: ProbeResults = AGREEING, **candidate: float
           ) -> SignalWindow:
    stable = Traffic(requests=20, busy=20 * 5000, queued=1000, replicas=1, p99=9.0)
    mine = replace(stable, busy=slower * stable.busy, **candidate)  # type: ignore[arg-type]
    both = tuple(Round(time=float(time), traffic={"old": stable, "new": mine}) for time in range(seconds))
    return SignalWindow(started=0, analysis="k", rounds=both, probes=probes)


def unread(seconds: int, *names: str) -> SignalWindow:
    """As :func:`window`, with no metrics of the revisions ``names``."""
    seen = window(seconds=seconds)
    rounds = (replace(one, traffic={name: part for name, part in one.traffic.items() if name not in names})
              for one in seen.rounds)
    return replace(seen, rounds=tuple(rounds))


def asked(**limits: float) -> Question:
    return replace(QUESTION, limits=Limits(**limits))  # type: ignore[arg-type]


def test_samples_of_another_analysis_do_not_count() -> None:
    assert compare(None, QUESTION).verdict == "open"
    assert compare(replace(window(), analysis="other"), QUESTION).verdict == "open"
    assert compare(window(), QUESTION).verdict == "good"


@pytest.mark.parametrize(
    ("seen", "question", "words"),
    [
        (window(seconds=2), QUESTION, "60 requests of each are needed"),
        (window(), asked(requests=10_000), "10000 requests of each are needed"),
        (window(), asked(watched=60), "the analysis lasts 60 s at least"),
        (window(probes=ProbeResults()), asked(similarity=0.9), "outputs are being compared"),
        (window(slower=1.2499), QUESTION, "too close to tell yet"),
    ],
)
def test_what_is_missing_is_said(seen: SignalWindow, question: Question, words: str) -> None:
    answer = compare(seen, question)
    assert answer.verdict == "open"
    assert words in answer.message
    assert not answer.starved


@pytest.mark.parametrize(
    ("seen", "question", "words"),
    [
        (window(seconds=302), asked(requests=10_000), "10000 requests of each are needed"),
        (window(seconds=302, probes=ProbeResults(pairs=8, flawed=4, similarities=(1.0,) * 4)), asked(similarity=0.9),
         "outputs are being compared"),
        (unread(302, "new"), QUESTION, "60 requests of each are needed"),
        (unread(302, "new", "old"), QUESTION, "60 requests of each are needed"),
        (unread(302, "new"), replace(QUESTION, alone=True), "60 requests are needed"),
    ],
)
def test_what_is_missing_with_all_patience_is_left_to_a_person(
    seen: SignalWindow, question: Question, words: str
) -> None:
    answer = compare(seen, question)
    assert (answer.verdict, answer.starved) == ("open", True)
    assert words in answer.message
    assert not compare(replace(seen, rounds=seen.rounds[:300]), question).starved


def test_outputs_without_numbers_are_not_waited_for() -> None:
    silent = ProbeResults(pairs=16)
    answer = compare(window(probes=silent), asked(similarity=0.9))
    assert answer.verdict == "good"
    assert "outputs were not compared: 16 answers hold no numbers to compare, or too many" in answer.message
    assert compare(window(probes=replace(silent, pairs=15)), asked(similarity=0.9)).verdict == "open"
    assert "not compared" not in compare(window(probes=silent), QUESTION).message, "nobody asked for it"


def test_outputs_that_cannot_be_compared_do_not_block_live_traffic() -> None:
    answer = compare(window(probes=ProbeResults(problem="no inputs")), asked(similarity=0.9))
    assert answer.verdict == "good"
    assert answer.message.endswith("; outputs were not compared: no inputs")
    late = replace(AGREEING, problem="no inputs")
    assert not compare(window(probes=late), asked(similarity=0.9)).uncompared, "they were"


def test_starved_is_what_gets_no_requests_and_no_probes() -> None:
    answer = compare(window(seconds=2, probes=ProbeResults(problem="refused")), QUESTION)
    assert answer.starved
    assert "60 requests of each are needed; refused" in answer.message


@pytest.mark.parametrize(
    ("probes", "words"),
    [
        (ProbeResults(pairs=6, similarities=(0.2,) * 5 + (0.99,)), "cosine 0.200 (median of 6, limit 0.900)."),
        (ProbeResults(pairs=6, similarities=(0.2,) * 6, single=True), "0.900, a single number by its relative error)."),
        (ProbeResults(pairs=4, flawed=3, flaw="no answer"), "3 of 4 probes that the stable revision answers went"),
    ],
)
def test_other_answers_roll_back(probes: ProbeResults, words: str) -> None:
    answer = compare(window(probes=probes), asked(similarity=0.9))
    assert answer.reason == Reason.OUTPUTS_DIFFER
    assert words in answer.message


def test_one_stray_answer_does_not() -> None:
    probes = ProbeResults(pairs=8, flawed=1, flaw="timeout", similarities=(0.999,) * 6 + (0.1,))
    assert compare(window(probes=probes), asked(similarity=0.9)).verdict == "good"


def test_tail_beyond_the_objective_that_the_stable_revision_keeps() -> None:
    seen = window(p99=10.9, seconds=LONG)
    answer = compare(seen, asked(milliseconds=10))
    assert answer.reason == Reason.OBJECTIVE_MISSED
    assert "objective of 10 ms" in answer.message
    assert compare(seen, asked(milliseconds=8)).verdict == "good", "both miss it"
    assert compare(seen, asked(milliseconds=12)).verdict == "good"


def requires(**limits: float) -> Question:
    return asked(**{"milliseconds": 10, "required": True, "awaited": True, "patience": 1500, **limits})


def test_a_required_objective_refuses_also_where_the_stable_revision_misses_it() -> None:
    answer = compare(window(p99=9.5, seconds=LONG), requires(milliseconds=8))
    assert (answer.verdict, answer.reason) == ("worse", Reason.OBJECTIVE_MISSED)
    assert "p99 9.5 ms (9.26 to 9.75) of 8 ms allowed, over 11 windows of 100 requests or more" in answer.message
    assert "Raise spec.objective.latency.milliseconds" in answer.message
    assert compare(window(p99=8.5, seconds=LONG), requires()).verdict == "good"


@pytest.mark.parametrize(("seconds", "p99", "limits", "words"), [
    (40, 8.5, {}, "p99 is known after 10 windows of a minute and 100 requests to each replica, and there were 0"),
    (600, 8.5, {}, "and there were 9"),
    (600, 20.0, {}, "and there were 9"),
    (LONG, 9.9, {}, "p99 9.9 ms (9.65 to 10.2) of 10 ms allowed, over 11 windows of 100 requests or more is too "
                    "close to tell"),
    (LONG, 10.1, {"shown": True}, "is too close to tell"),
    (LONG, 9.9, {"shown": True}, ""),
    # 1,200 requests a minute: p99.99 takes 10,000.
    (LONG, 8.5, {"percentile": 99.99}, "p99.99 is known after 10 windows of a minute and 10000 requests to each "
                                       "replica, and there were 1"),
    (LONG, None, {}, "p99 takes 100 requests, of which the build measured fewer, and replicas do not export it"),
    (40, None, {"shown": True}, ""),
])
def test_a_required_objective_is_waited_for_and_never_guessed(
    seconds: int, p99: float | None, limits: dict[str, float], words: str
) -> None:
    seen = window(seconds=seconds, p99=p99)  # type: ignore[arg-type]
    answer = compare(seen, requires(slowdown=2.0, **limits))
    assert answer.verdict == ("open" if words else "good")
    assert words in answer.message
    assert not answer.starved
    late = compare(seen, requires(slowdown=2.0, **{**limits, "patience": seconds - 1}))
    assert (late.verdict, late.starved) == (("open", True) if words else ("good", False))


def test_a_required_objective_does_not_keep_a_cure_away() -> None:
    seen = window(p99=9.9, seconds=LONG)
    broken = tuple(replace(one, traffic={**one.traffic, "old": Traffic(failed=20.0, replicas=1)})
                   for one in seen.rounds)
    assert compare(replace(seen, rounds=broken), requires()).verdict == "good"


def test_a_required_objective_of_a_candidate_alone() -> None:
    def lonely(p99: float) -> SignalWindow:
        seen = window(p99=p99, seconds=LONG)
        return replace(seen, rounds=tuple(replace(one, traffic={"new": one.traffic["new"]}) for one in seen.rounds))

    alone = replace(requires(), alone=True)
    assert compare(lonely(8.0), alone).verdict == "good"
    assert compare(lonely(12.0), alone).reason == Reason.OBJECTIVE_MISSED
    assert "too close to tell" in compare(lonely(9.9), alone).message


def test_tail_beside_the_stable_revisions() -> None:
    answer = compare(window(p99=20.0, seconds=LONG), QUESTION)
    assert answer.reason == Reason.SLOWER
    assert "p99 20 ms, of the stable revision 9 ms" in answer.message


def test_a_tail_of_the_last_minute_is_looked_at_once_a_minute() -> None:
    """Forty values of forty seconds are of the same requests, those of the start among them."""
    assert compare(window(p99=20.0), QUESTION).verdict == "good"
    assert compare(window(p99=20.0, seconds=10 * 60), QUESTION).verdict == "good", "nine minutes that count"
    slow_start = window(seconds=LONG)
    first = tuple(replace(one, traffic={**one.traffic, "new": replace(one.traffic["new"], p99=200.0)})
                  for one in slow_start.rounds[:60])
    assert compare(replace(slow_start, rounds=first + slow_start.rounds[60:]), QUESTION).verdict == "good"


@pytest.mark.parametrize(("watched", "seconds", "verdict"), [
    (164, 300, "good"),
    (165, 300, "open"),
    (165, LONG, "good"),
])
def test_an_analysis_that_may_take_so_long_waits_for_tails(watched: int, seconds: int, verdict: str) -> None:
    limits = Limits(watched=watched, patience=1500)
    answer = compare(window(seconds=seconds), replace(QUESTION, limits=limits))
    assert answer.verdict == verdict
    assert ("p99 is compared once a minute" in answer.message) == (verdict == "open")
    bare = window(seconds=seconds)
    rounds = tuple(replace(one, traffic={name: replace(part, p99=None) for name, part in one.traffic.items()})
                   for one in bare.rounds)
    assert compare(replace(bare, rounds=rounds), replace(QUESTION, limits=limits)).verdict == "good", "not exported"
    impatient = replace(limits, patience=seconds - 1)
    assert compare(window(seconds=seconds), replace(QUESTION, limits=impatient)).verdict == "good"


def minute_tails(
    rng: random.Random, minutes: int, rate: int, *, slower: float = 1.0, cold: int = 0
) -> list[float | None]:
    """What Triton exports, seen every five seconds: p99 of ``rate`` requests a second over the last minute; ``cold``
    requests of the first second take ten times as long."""
    seconds: deque[list[float]] = deque(maxlen=60)
    found: list[float | None] = []
    for second in range(60 * minutes):
        took = [slower * rng.lognormvariate(math.log(10), 0.5) for _ in range(rate)]
        if not second:
            took[:cold] = [10 * one for one in took[:cold]]
        seconds.append(took)
        recent = sorted(itertools.chain.from_iterable(seconds)) if second % 5 == 0 else []
        found.append(recent[int(0.99 * len(recent))] if recent else None)
    return found


@pytest.mark.study
@pytest.mark.parametrize(("rate", "slower", "cold", "refused"), [
    (2, 1.0, 0, 0), (2, 1.0, 2, 0), (5, 1.0, 5, 0), (5, 2.0, 5, 30),
])
def test_tails_of_equal_revisions_are_told_from_slow_ones(rate: int, slower: float, cold: int, refused: int) -> None:
    """Thirty runs of 25 minutes, as long as an analysis may take."""
    answers = []
    for seed in range(30):
        rng = random.Random(seed)
        mine, theirs = minute_tails(rng, 25, rate, slower=slower, cold=cold), minute_tails(rng, 26, rate)[60:]
        tail = Tail()
        low = -math.inf
        for second, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            tail.add(float(second), one, other)
            interval = tail.ratio.interval(ALPHA) if second % 60 == 0 else None
            low = max(low, interval.low) if interval else low
        answers.append(low > math.log1p(0.25))
    assert sum(answers) == refused


def test_time_in_the_queue_does_not_count_under_unlike_load() -> None:
    """Three times the requests, all of the difference in the queue."""
    crowded = window(slower=6.0, requests=60.0, queued=60 * 5000 + 3000.0)
    assert compare(crowded, QUESTION).verdict == "good"
    assert compare(window(slower=2.0, queued=101_000.0), QUESTION).reason == Reason.SLOWER, "like load: it counts"


def test_out_of_patience_the_better_guess_decides() -> None:
    # By turns six times as slow and as fast: even, and not told from the limit so soon.
    stable = Traffic(requests=20, busy=100_000, replicas=1)
    spread = math.log(6)
    both = tuple(
        Round(time=float(time), traffic={"old": stable, "new": replace(
            stable, busy=100_000 * math.exp(spread * (1 if time // 8 % 2 else -1)))})
        for time in range(64)
    )
    seen = SignalWindow(started=0, analysis="k", rounds=both, probes=AGREEING)
    assert compare(seen, asked(patience=100)).verdict == "open"
    assert compare(seen, asked(patience=60)).verdict == "good"
    worse = compare(window(slower=1.2501, seconds=70), asked(patience=60))
    assert (worse.verdict, worse.reason) == ("worse", Reason.ANALYSIS_INCONCLUSIVE)


def test_few_samples_are_not_promoted_by_patience() -> None:
    seen = window(seconds=400)
    thin = tuple(replace(one, traffic={name: Traffic(requests=0.1, busy=500, replicas=1) for name in one.traffic})
                 for one in seen.rounds)
    assert compare(replace(seen, rounds=thin), QUESTION).verdict == "open"


def test_alone_it_must_answer_and_hardly_fail() -> None:
    alone = replace(QUESTION, alone=True)
    lonely = tuple(replace(one, traffic={"new": one.traffic["new"]}) for one in window().rounds)
    seen = replace(window(), rounds=lonely)
    assert compare(seen, alone).verdict == "good"
    assert compare(replace(seen, rounds=lonely[:2]), alone).verdict == "open"
    broken = tuple(replace(one, traffic={"new": Traffic(requests=10, failed=10, replicas=1)}) for one in lonely)
    assert compare(replace(seen, rounds=broken), alone).reason == Reason.FAILED_INFERENCES


def test_after_promotion_only_failures_count() -> None:
    assert fails_more(window(slower=3.0), QUESTION) is None
    found = fails_more(window(failed=10.0), QUESTION)
    assert found is not None
    assert found.reason == Reason.FAILED_INFERENCES
    gone = tuple(replace(one, traffic={"new": Traffic(failed=5, replicas=1)}) for one in window(seconds=5).rounds)
    late = replace(window(), rounds=(*window().rounds, *gone))
    assert fails_more(late, QUESTION) is not None, "the stable revision's earlier requests are what it is held against"


@pytest.mark.parametrize(
    ("seen", "question", "reason"),
    [
        (window(slower=2.0), QUESTION, Reason.SLOWER),
        (window(failed=10.0), QUESTION, Reason.FAILED_INFERENCES),
        (window(slower=1.2501, seconds=70), asked(patience=60), None),
        (window(p99=10.9, seconds=LONG), asked(milliseconds=10), None),
        (window(probes=ProbeResults(pairs=6, similarities=(0.2,) * 6)), asked(similarity=0.9), None),
        (window(p99=10.9, seconds=LONG), requires(), Reason.OBJECTIVE_MISSED),
        (window(p99=10.1, seconds=LONG), requires(), None),
        (window(), QUESTION, None),
        (window(seconds=2), QUESTION, None),
    ],
)
def test_while_a_person_is_waited_for_only_proof_counts(
    seen: SignalWindow, question: Question, reason: Reason | None
) -> None:
    found = proven_worse(compare(seen, question), question.limits)
    assert (found and found.reason) == reason


@pytest.mark.parametrize(
    ("seconds", "candidate", "stable", "verdict"),
    [
        # Those that it answers are answered as fast.
        (200, {"requests": 16.0, "rejected": 4.0}, {}, "worse"),
        (40, {"requests": 16.0, "rejected": 4.0}, {}, "open"),
        (17, {"requests": 16.0, "rejected": 4.0}, {}, "open"),
        (200, {"requests": 16.0, "rejected": 4.0}, {"requests": 16.0, "rejected": 4.0}, "good"),
        (200, {}, {"requests": 16.0, "rejected": 4.0}, "good"),
        # It gets twice as many requests.
        (200, {"requests": 32.0, "rejected": 8.0}, {}, "good"),
        (17, {}, {}, "good"),
    ],
)
def test_one_that_turns_more_requests_away_is_not_as_good(
    seconds: int, candidate: dict[str, float], stable: dict[str, float], verdict: str
) -> None:
    each = Traffic(requests=20, replicas=1)
    sides = {"new": replace(each, **candidate), "old": replace(each, **stable)}  # type: ignore[arg-type]
    traffic = {name: replace(one, busy=5000 * one.requests, queued=50 * one.requests) for name, one in sides.items()}
    both = tuple(Round(time=float(time), traffic=traffic) for time in range(seconds))
    answer = compare(SignalWindow(started=0, analysis="k", rounds=both, probes=AGREEING), QUESTION)
    assert answer.verdict == verdict
    if verdict == "worse":
        assert answer.reason == Reason.SLOWER
        assert "requests waited in its queue for longer than spec.serving.queue allows, of the stable" in answer.message


def test_a_stall_that_turns_many_away_is_one_event() -> None:
    stall = Traffic(requests=1, rejected=500, busy=5000, replicas=1)
    usual = Traffic(requests=20, busy=100_000, replicas=1)
    both = tuple(Round(time=float(time), traffic={"new": stall if time == 15 else usual, "old": replace(
        usual, requests=400.0, busy=2e6) if time == 15 else usual}) for time in range(60))
    answer = compare(SignalWindow(started=0, analysis="k", rounds=both, probes=AGREEING), QUESTION)
    assert answer.verdict == "open"


def test_samples_that_begin_again_take_more_proof_each_time() -> None:
    """A candidate may wait for days: 400 times in one day its oldest samples are forgotten, and each time the tests
    begin again. What is wrong once in a thousand times would be wrong within days."""
    def proof(begun_again: int) -> int:
        """Seconds of 4 failures in 20 against none until it is believed."""
        broken = window(requests=16.0, failed=4.0)
        return next(seconds for seconds in range(40) if fails_more(
            replace(broken, rounds=broken.rounds[:seconds], begun_again=begun_again), QUESTION))

    assert proof(0) < proof(30) < proof(3000) < 5 * proof(0)
    first, later = (compare(replace(window(), begun_again=times), QUESTION).ratio for times in (0, 30))
    assert first is not None
    assert later is not None
    assert first.high < later.high
    assert compare(replace(window(slower=2.0), begun_again=3000), QUESTION).reason == Reason.SLOWER


@pytest.mark.parametrize("every", [0, 25])
def test_what_the_stable_revision_did_is_held_against_it_once(every: int) -> None:
    """Four of a hundred beside none of a hundred is chance, however many rounds it comes in; ``every`` so many of them
    the stable revision gets a request too, or none at all."""
    lull = Traffic(requests=5, replicas=1)
    rounds = [Round(time=float(time), traffic={"old": lull, "new": lull}) for time in range(20)]
    for time in range(100):
        mine = replace(lull, failed=float(time % 5 == 0))
        theirs = Traffic(requests=float(bool(every) and time % every == every - 1), replicas=1)
        rounds.append(Round(time=20.0 + time, traffic={"old": theirs, "new": mine}))
    assert fails_more(replace(window(), rounds=tuple(rounds)), QUESTION) is None


@pytest.mark.parametrize(
    ("stable", "candidate", "verdict"),
    [
        (Traffic(failed=20.0, replicas=1), Traffic(), "good"),
        (Traffic(requests=10.0, failed=10.0, busy=20_000, replicas=1), Traffic(), "good"),
        (Traffic(requests=10.0, failed=10.0, replicas=1), Traffic(failed=20.0), "worse"),
        (Traffic(failed=20.0, replicas=1), Traffic(failed=20.0), "open"),
        (Traffic(replicas=1), Traffic(), "open"),
    ],
)
def test_a_broken_stable_revision_does_not_stand_in_its_cures_way(
    stable: Traffic, candidate: Traffic, verdict: str
) -> None:
    """Those of its requests that are answered are answered fast."""
    mine = candidate if candidate.failed else Traffic(requests=20.0, busy=100_000, replicas=1)
    both = tuple(Round(time=float(time), traffic={"old": stable, "new": mine}) for time in range(40))
    answer = compare(SignalWindow(started=0, analysis="k", rounds=both, probes=ProbeResults(problem="no")), QUESTION)
    assert answer.verdict == verdict
    assert ("the stable revision fails more" in answer.message) == (verdict == "good")


def test_rounds_are_what_the_load_says() -> None:
    """The generator itself: a mean ratio near the one that was asked for."""
    seen = list(rounds(Load(slower=2.0, replicas=3, tail=0.5), 5, 400))
    mine, theirs = (sum(one.traffic[name].busy for one in seen) / sum(one.traffic[name].requests for one in seen)
                    for name in ("new", "old"))
    assert mine / theirs == pytest.approx(2.0, rel=0.1)
