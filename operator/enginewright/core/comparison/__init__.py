"""A candidate against the stable revision in the same seconds: is it proven as good, proven worse, or still open?

Latency is compared second by second, so that what slows both (a busy node, a burst of large requests) cancels out;
failures against those of the stable revision, so that a client's bad requests, which hit both, count against neither.
"""

from __future__ import annotations

from enginewright.core.comparison.mirrored import Mirrored
from enginewright.core.comparison.outputs import FRUITLESS_PAIRS, fruitless
from enginewright.core.comparison.question import MOST_PATIENCE, Answer, Limits, Question
from enginewright.core.comparison.verdict import compare, fails_more, proven_worse

__all__ = ["FRUITLESS_PAIRS", "MOST_PATIENCE", "Answer", "Limits", "Mirrored", "Question", "compare", "fails_more",
           "fruitless", "proven_worse"]
