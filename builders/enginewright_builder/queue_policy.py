"""The queue policy of a replica, written into the ``config.pbtxt`` that its engine was published with.

An engine knows no queue: its store, fingerprint and proof are the same whatever becomes of requests that wait. So each
replica writes the policy into a copy of the file, after the engine was checked (docs/adr/0041). Standard library only,
as what checks engines is; tests hold each text against Triton's own schema.
"""

from __future__ import annotations

from enginewright_builder.contract import QueueLevel, QueuePolicy, QueueRequest

CONFIG_FILE = "config.pbtxt"
BATCHING = "dynamic_batching {\n"
POLICIES = ("default_queue_policy", "priority_queue_policy")
ACTIONS = {"reject": "REJECT", "continue": "DELAY"}


class UnreadableConfigError(ValueError):
    """The file is not as this project's builder writes it."""


def with_queue(config: str, queue: QueueRequest) -> str:
    """``config`` in text format, with the policy of ``queue`` for the dynamic batcher. A model without one gets one,
    which joins no requests: Triton's queues are the batcher's. Raises :class:`UnreadableConfigError`."""
    added, whole = [f"  {line}\n" for line in _settings(queue)], config.splitlines(keepends=True)
    heads = [at for at, line in enumerate(whole) if line.startswith("dynamic_batching")]
    if not heads:
        return "".join((*whole, BATCHING, *added, "}\n"))
    known = any(line.strip().startswith(POLICIES) for line in whole)
    if len(heads) > 1 or whole[heads[0]] != BATCHING or known:
        raise UnreadableConfigError("dynamic_batching in config.pbtxt is not as the builder writes it")
    return "".join((*whole[:heads[0] + 1], *added, *whole[heads[0] + 1:]))


def _settings(queue: QueueRequest) -> list[str]:
    lines = []
    if queue.priority_levels:
        lines += [f"priority_levels: {queue.priority_levels}",
                  f"default_priority_level: {queue.default_priority_level}"]
    lines += _block(POLICIES[0], _policy(queue.policy))
    for one in sorted(queue.levels, key=_level):
        lines += _block(POLICIES[1], [f"key: {one.level}", *_block("value", _policy(one.policy))])
    return lines


def _level(one: QueueLevel) -> int:
    return one.level


def _policy(policy: QueuePolicy) -> list[str]:
    """Only what is not Triton's default."""
    stated = {
        "timeout_action": ACTIONS[policy.timeout_action] if policy.timeout_action != "reject" else "",
        "default_timeout_microseconds": policy.timeout_us or "",
        "allow_timeout_override": "true" if policy.allow_timeout_override else "",
        "max_queue_size": policy.max_queue_size or "",
    }
    return [f"{name}: {value}" for name, value in stated.items() if value]


def _block(name: str, lines: list[str]) -> list[str]:
    return [f"{name} {{", *(f"  {line}" for line in lines), "}"]
