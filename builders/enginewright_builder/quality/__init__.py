"""The quality monitor: a few live requests, answered once more by the source model off the serving path.

Triton writes the tensors of sampled requests into a folder in memory; the monitor, a container beside the server, takes
them from there, lets the source model answer the same inputs, and scores the answers that clients got by the accuracy
gate's own metric. Nothing of a request leaves it but scores. Decision: ``docs/adr/0020-quality-monitor.md``.
"""
