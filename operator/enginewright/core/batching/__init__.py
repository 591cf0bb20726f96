"""Which queue delay and preferred sizes Triton's dynamic batcher is to have: a pure function of what a replica counted.

Nothing here reads a clock or the network, so that a simulation runs the same code as the container beside a server
does. Decision: ``docs/adr/0019-adaptive-batching.md``.
"""

from enginewright.core.batching.follow import State, begin, follow, loaded, refused, restart, server_lost
from enginewright.core.batching.mix import Mix, candidate
from enginewright.core.batching.proven import Refusal, safe_set
from enginewright.core.batching.safe import SafeSet, Setting

__all__ = ["Mix", "Refusal", "SafeSet", "Setting", "State", "begin", "candidate", "follow", "loaded", "refused",
           "restart", "safe_set", "server_lost"]
