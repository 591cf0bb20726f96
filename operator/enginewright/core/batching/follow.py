"""One step of following the traffic: from the state so far and what replicas did since, to the next state.

The default is what the build proved, and all else is on trial:

* Only from the default is a candidate tried, and only where it promises a gain above :data:`PROMISE` in two looks.
* It is kept where requests then take less by :data:`GAIN`, left where it does not suit the traffic in two looks, and
  compared with the default again from time to time.
* Loads, and trials that gained nothing, may take half of the share of requests that may be late, so that the percentile
  of the objective cannot tell them. The same is not tried again for twice as long as that share makes one trial last.
* Between two trials lies a dwell time, of many loads of the model.
* Where a load fails nothing is tried for an hour: it may fail for lack of memory, which those who ask would notice.
  Where a load took the server with it, requests were lost, and the bar is twice as long each further time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from enginewright.core.backoff import Backoff
from enginewright.core.batching.mix import Candidate, Mix, candidate
from enginewright.core.batching.safe import SafeSet, Setting
from enginewright.core.observed import Spent

# Of the time that requests took under the default.
PROMISE, GAIN = 0.15, 0.10
# A trial during which requests take so many times what they did is over, whatever the window's length.
WORSE = 1.3
# Seconds and requests of a window that something is concluded from, fewer to leave a setting; and seconds after which
# one with too few requests is repeated.
LOOK, LEAVE, STALE = 2.0, 1.0, 20.0
REQUESTS, LEAVE_REQUESTS = 30, 5
# After a change: batches that began before it are still counted.
SETTLE = 1.0
# Between two trials: so many seconds, or so many loads of the model.
DWELL, DWELL_LOADS = 15.0, 20.0
# Of what may be late, what loads and fruitless trials may use; and how many of them may be made on credit.
SHARE, CREDIT_TRIALS = 0.5, 3
# Seconds without a trial after a load that failed.
REFUSED = 3600.0
LOST = Backoff(first=REFUSED, most=math.inf)

NOTHING = Spent()
Phase = Literal["default", "trial", "kept"]


@dataclass(frozen=True, kw_only=True)
class State:
    """``setting`` is what replicas are to have, and ``why``; ``changed`` when that was decided, ``tried`` when the last
    trial began. ``seen`` is of ``window`` seconds under it. ``looked`` is the crowd of the look before, ``unfit`` says
    that the setting did not suit then, ``base`` is what a request took before the trial,
    ``taken`` what it took when the setting was kept.
    ``credit`` is seconds of loads and fruitless trials that there still may be; ``barred`` has kinds of candidates
    and until when they are not tried, ``closed`` until when none is; ``lost`` counts servers that ended of a load."""

    setting: Setting
    why: str = "as measured by the build"
    phase: Phase = "default"
    trying: Candidate | None = None
    time: float
    changed: float
    tried: float | None = None
    seen: Spent = NOTHING
    window: float = 0.0
    looked: int | None = None
    unfit: bool = False
    base: float = 0.0
    taken: float = 0.0
    credit: float
    barred: tuple[tuple[int, float], ...] = ()
    closed: float = 0.0
    lost: int = 0


def begin(time: float, safe: SafeSet) -> State:
    return State(setting=safe.default, time=time, changed=time - _settling(safe), credit=CREDIT_TRIALS * _cost(safe))


def follow(state: State, time: float, spent: Spent | None, safe: SafeSet) -> State:
    """``spent`` is what all replicas did since the step before, None where that is unknown: then nothing changes,
    and what was seen is dropped. ``time`` is seconds on a monotonic clock."""
    passed = time - state.time
    credit = min(CREDIT_TRIALS * _cost(safe), state.credit + SHARE * safe.allowed * passed)
    state = replace(state, time=time, credit=credit)
    if spent is None or time - passed < state.changed + _settling(safe):
        return _anew(state)
    state = replace(state, seen=state.seen + spent, window=state.window + passed)
    if state.seen.answered < (LEAVE_REQUESTS if state.phase == "kept" else REQUESTS):
        return state if state.window < STALE else _anew(state)
    mix = Mix.of(state.seen)
    if state.phase == "default":
        return state if state.window < LOOK else _from_default(state, mix, safe)
    return _on_trial(state, mix, safe) if state.phase == "trial" else _while_kept(state, mix, safe)


def loaded(state: State, time: float, safe: SafeSet) -> State:
    """Once replicas serve with ``state.setting``: what came before does not count, however long the load took."""
    return replace(state, changed=time - safe.load_seconds)


def refused(state: State, time: float, why: str, safe: SafeSet) -> State:
    """Where ``state.setting`` could not be loaded: the default, and for :data:`REFUSED` seconds nothing else, or as
    long as after the server that was lost last."""
    closed = max(state.closed, time + LOST.delay(state.lost))
    return _back(replace(state, time=time, closed=closed), why, safe)


def server_lost(state: State, time: float, why: str, safe: SafeSet) -> State:
    """Where the server ended during a load or a trial, in whatever phase: as :func:`refused`, for twice as long as
    after the one before."""
    return refused(replace(state, lost=state.lost + 1), time, why, safe)


def restart(state: State, time: float, safe: SafeSet) -> State:
    """Where nothing that was found out holds any more; what loads did to the server does."""
    return replace(begin(time, safe), closed=state.closed, lost=state.lost)


def _from_default(state: State, mix: Mix, safe: SafeSet) -> State:
    found = candidate(mix, safe)
    if found is None or found.expected > (1 - PROMISE) * mix.taken:
        return _anew(replace(state, looked=None))
    # A window into which the traffic changed shows a crowd that there never was.
    seen_twice = state.looked is not None and abs(state.looked - found.crowd) <= 1
    if not (seen_twice and _may_try(state, found, safe)):
        return _anew(replace(state, looked=found.crowd))
    return _anew(replace(state, setting=found.setting, phase="trial", trying=found, changed=state.time, why=found.why,
                         tried=state.time, base=mix.taken, credit=state.credit - safe.load_seconds))


def _may_try(state: State, found: Candidate, safe: SafeSet) -> bool:
    rested = state.tried is None or state.time - state.tried >= max(DWELL, DWELL_LOADS * safe.load_seconds)
    barred = any(kind == found.kind and state.time < until for kind, until in state.barred)
    rested = rested and state.time >= state.closed
    return rested and state.credit >= _cost(safe) and not barred


def _on_trial(state: State, mix: Mix, safe: SafeSet) -> State:
    if mix.taken > WORSE * state.base or (state.window >= LOOK and mix.taken > (1 - GAIN) * state.base):
        return _fruitless(state, mix, safe)
    if state.window < LOOK:
        return state
    why = f"{state.why}; now {mix.taken * 1e3:.1f} ms a request, {state.base * 1e3:.1f} ms before"
    return _anew(replace(state, phase="kept", taken=mix.taken, why=why))


def _fruitless(state: State, mix: Mix, safe: SafeSet) -> State:
    used = state.time - state.changed
    kind = state.trying.kind if state.trying else 0
    # What is tried in vain again and again is to leave half of the credit to others.
    until = state.time + 2 * used / (SHARE * safe.allowed)
    barred = (*((one, end) for one, end in state.barred if end > state.time and one != kind), (kind, until))
    why = (f"{state.setting} gained nothing: {mix.taken * 1e3:.1f} ms a request, {state.base * 1e3:.1f} ms with the "
           "measured setting")
    return _back(replace(state, credit=state.credit - used, barred=barred), why, safe)


def _while_kept(state: State, mix: Mix, safe: SafeSet) -> State:
    if state.window < LEAVE:
        return state
    if state.trying is None or not state.trying.suits(mix, state.taken):
        if not state.unfit:
            return _anew(replace(state, unfit=True))
        return _back(state, f"traffic changed: batches of {mix.batch:.1f}, {mix.inside:.1f} requests inside, "
                            f"{mix.taken * 1e3:.1f} ms a request", safe)
    if state.time - state.changed >= 2 * _cost(safe) / (SHARE * safe.allowed):
        return _back(state, f"{state.setting} is to be compared with the measured setting again", safe)
    return _anew(replace(state, unfit=False))


def _back(state: State, why: str, safe: SafeSet) -> State:
    return _anew(replace(state, setting=safe.default, phase="default", trying=None, looked=None, unfit=False,
                         changed=state.time, why=why, credit=state.credit - safe.load_seconds))


def _anew(state: State) -> State:
    return replace(state, seen=NOTHING, window=0.0)


def _settling(safe: SafeSet) -> float:
    """Until replicas have a new setting, and what was sent before it is answered."""
    return SETTLE + safe.load_seconds


def _cost(safe: SafeSet) -> float:
    """Seconds of a trial."""
    return _settling(safe) + LOOK
