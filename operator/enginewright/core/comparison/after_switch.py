"""Once all live traffic has moved at once: does the candidate fail more of it than the stable revision did before?

The two are not compared in the same seconds any more, so that a client which begins to send bad requests just then
looks like a bad engine. So the caller goes back, lets the stable revision have that traffic too, and believes it the
second time. Latency is not compared: probes and the whole live load are two loads.
"""

from __future__ import annotations

import math
from dataclasses import replace

from enginewright.core.comparison.latency import ALPHA
from enginewright.core.comparison.question import Answer, Question
from enginewright.core.failures import Failures, Trials
from enginewright.core.reasons import Reason
from enginewright.core.signals import SignalWindow


def after_switch(window: SignalWindow, question: Question, since: float) -> Answer:
    """``since`` is when the traffic moved, on the clock of the rounds. Never "good": that is for time to say."""
    seen = _seen(window, question, since)
    message = (f"{seen.failed:.0f} of {seen.requests:.0f} inferences failed after all traffic had moved to it, of the "
               f"stable revision's {seen.other_failed:.0f} of {seen.other_requests:.0f} just before.")
    answer = Answer(verdict="open", message=message, requests=round(seen.requests - seen.failed),
                    failures=round(seen.failed))
    if not seen.other_requests or Failures().grown(seen) < -math.log(ALPHA):
        return answer
    return replace(answer, verdict="worse", reason=Reason.FAILED_INFERENCES)


def _seen(window: SignalWindow, question: Question, since: float) -> Trials:
    """Of live requests: what the candidate did of them since, and the stable revision. Before, the candidate got probes
    alone, and the stable revision as many beside its live requests: these say nothing of what clients send."""
    before = after = failed = probes = answered = 0.0
    failing = 0
    for one in window.rounds:
        if theirs := one.traffic.get(question.stable):
            before, failed = before + theirs.requests, failed + theirs.failed
        mine = one.traffic.get(question.candidate)
        if mine and one.time <= since:
            probes += mine.requests
        elif mine:
            answered, after, failing = answered + mine.requests, after + mine.failed, failing + (mine.failed > 0)
    return Trials(after, after + answered, failed, failed + max(0.0, before - probes), failing)
