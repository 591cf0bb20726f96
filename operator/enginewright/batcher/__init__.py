"""The container beside a server that lets its batching follow its traffic: ``enginewright adapt``.

It reads the replica's own counters, applies the rule of :mod:`enginewright.core.batching` on loopback, and knows
nothing else. Decision: ``docs/adr/0019-adaptive-batching.md``.
"""
