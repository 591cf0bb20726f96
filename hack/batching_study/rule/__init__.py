"""Which queue delay and preferred sizes Triton's dynamic batcher is to have: a pure function of what replicas counted.

Nothing here reads a clock or the network, so that a simulation runs the same code as a real server's follower does.
"""

from batching_study.rule.follow import State, begin, follow
from batching_study.rule.mix import Mix, candidate
from batching_study.rule.safe import SafeSet, Setting, safe_set

__all__ = ["Mix", "SafeSet", "Setting", "State", "begin", "candidate", "follow", "safe_set"]
