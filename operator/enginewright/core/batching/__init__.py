"""Which queue delay and preferred sizes Triton's dynamic batcher is to have: a pure function of what replicas counted.

Nothing here reads a clock or the network, so that a simulation runs the same code as a real server's follower does.
"""

from enginewright.core.batching.follow import State, begin, follow
from enginewright.core.batching.mix import Mix, candidate
from enginewright.core.batching.safe import SafeSet, Setting, safe_set

__all__ = ["Mix", "SafeSet", "Setting", "State", "begin", "candidate", "follow", "safe_set"]
