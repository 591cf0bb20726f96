"""Why an object is in its state, and what comes next, in plain words. Pure: from the object to lines of text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from enginewright.core import labels
from enginewright.core.commands import RETRIES, plugin
from enginewright.core.conditions import find, parse_timestamp
from enginewright.core.events import UNDER_WAY
from enginewright.core.reasons import Condition, Reason
from enginewright.core.status import (
    BatchStatus,
    ClassStatus,
    EngineStatus,
    ProposedResourcesStatus,
    ServerStatus,
    Status,
    TokensStatus,
    read_status,
)
from enginewright.core.way_back import way_back
from enginewright.plugin import money
from enginewright.plugin.durations import age

# In the order of the way: the first that is not True is what Ready waits for.
WAY = (
    Condition.SOURCE_RESOLVED,
    Condition.ENGINE_BUILT,
    Condition.ACCURACY_VERIFIED,
    Condition.ROLLOUT_COMPLETE,
    Condition.OBJECTIVE_MET,
    Condition.THROUGHPUT_HELD,
    Condition.SCALING_ACTIVE,
    Condition.QUALITY_HELD,
)
MARKS = {"True": "✓", "False": "✗", "Unknown": "…"}


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """``headline`` is one sentence. ``facts`` say what serves and on what evidence, ``way`` is one line for each
    condition, ``next`` what the user should or can do; each is empty when there is nothing to say."""

    headline: str
    facts: tuple[str, ...] = ()
    way: tuple[str, ...] = ()
    next: tuple[str, ...] = ()


def explain(obj: Mapping[str, Any], now: datetime) -> Explanation:
    name, raw = obj["metadata"]["name"], obj.get("status") or {}
    status = read_status(raw)
    if not status.conditions:
        return Explanation(
            headline=f"The operator has not looked at {name} yet.",
            next=("Is the operator running, and does it watch this namespace? kubectl get deploy -A -l "
                  f"{labels.NAME}={labels.PRODUCT}",),
        )
    if (status.observed_generation or 0) < obj["metadata"].get("generation", 0):
        return Explanation(headline=f"{name} was changed a moment ago; the operator has not looked at it since.",
                           facts=_facts(status), way=_way(raw, now))
    headline = _headline(name, status, raw)
    return Explanation(headline=headline, facts=_facts(status), way=_way(raw, now, headline),
                       next=_next(obj["metadata"], status, raw))


def _headline(name: str, status: Status, raw: Mapping[str, Any]) -> str:
    ready, available = (find(raw.get("conditions"), kind) for kind in (Condition.READY, Condition.AVAILABLE))
    if status.batch:
        run = "has answered its data set" if ready.get("status") == "True" else "has not answered its data set"
        return f"{name} {run}: {ready.get('message') or ready.get('reason') or 'nothing is known yet.'}"
    if ready.get("status") == "True":
        amiss = [f"{entry['type']} is False ({entry.get('reason')})" for entry in beside_ready(raw)]
        return f"{name} serves{', but ' + ' and '.join(amiss) if amiss else ' what its spec asks for'}."
    serving = "still serves the last proven engine" if available.get("status") == "True" else "does not serve"
    return f"{name} {serving}: {ready.get('message') or ready.get('reason') or 'nothing is known yet.'}"


def beside_ready(raw: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Conditions that are False; where Ready is True those that it does not wait for."""
    entries = (find(raw.get("conditions"), kind) for kind in WAY)
    return [entry for entry in entries if entry.get("status") == "False"]


def _on_labels(engine: EngineStatus) -> str:
    """The metric on labels beside the source's, and in how many groups the gate held. Empty where not asked for."""
    task, groups = engine.task, engine.groups
    on_labels = (f"{task.metric} on the labels {task.value:.4g} where the source has {task.source:.4g}"
                 if task and task.value is not None and task.source is not None else "")
    held = f"held in {groups.judged} groups by {groups.by}" if groups else ""
    small = f" ({groups.too_small} more are too small to judge)" if groups and groups.too_small else ""
    return ", ".join(filter(None, (on_labels, f"{held}{small}")))


def _beside_the_model(engine: EngineStatus) -> str:
    """What of a request's time is before and after the model. Empty where the report does not tell it apart."""
    layers = ((engine.pre_milliseconds, "before the model (pre)"), (engine.post_milliseconds, "after the model (post)"))
    told = " and ".join(f"{value:.3g} ms {where}" for value, where in layers if value is not None)
    mean = f"mean {engine.mean_milliseconds:.3g} ms, of which " if engine.mean_milliseconds is not None else ""
    return f"{mean}{told}" if told else ""


def _what_it_gains(engine: EngineStatus) -> str:
    return "what the unquantised model serves by vLLM's own settings" if engine.tokens else (
        "the throughput of the source model")


def _in_tokens(tokens: TokensStatus | None) -> tuple[str, ...]:
    if tokens is None:
        return ()
    figures = ((tokens.ttft_p99_milliseconds, "p99 {:,.0f} ms until the first token"),
               (tokens.tpot_p99_milliseconds, "p99 {:,.1f} ms for each token after it"),
               (tokens.output_rate, "{:,.1f} tokens a second"))
    guesses = (f"{tokens.accepted_tokens or 0:,} of {tokens.proposed_tokens:,} proposed tokens taken"
               if tokens.proposed_tokens else "")
    return (*(words.format(value) for value, words in figures if value), *filter(None, (guesses,)))


def _facts(status: Status) -> tuple[str, ...]:
    found = []
    engine, rollout = status.engine, status.rollout
    if engine:
        evidence = [
            f"{engine.speedup:.2f} times {_what_it_gains(engine)}" if engine.speedup else "",
            *_in_tokens(engine.tokens),
            f"p99 {engine.p99_milliseconds:.3g} ms" if engine.p99_milliseconds else "",
            _beside_the_model(engine),
            f"accuracy at least {engine.accuracy_low:.4g}" if engine.accuracy_low is not None else "",
            _on_labels(engine),
        ]
        measured = ", ".join(filter(None, evidence))
        proof = f", measured on {engine.device or 'its device'}: {measured}" if measured else ""
        what = engine.ships or f"{engine.backend} {engine.precision}"
        found.append(f"{'Language model' if engine.tokens else 'Engine'}: {what} ({engine.fingerprint[:8]}){proof}.")
        found += _memory_facts(engine)
    if status.server and status.server.runtime:
        found.append(_server_fact(status.server))
    found += map(_class_fact, status.classes)
    beside = rollout is not None and rollout.candidate not in (None, rollout.stable)
    if rollout and rollout.stable:
        count = f"{status.ready_replicas or 0} of {status.replicas or 0} replicas ready"
        found.append(f"Serving: revision {rollout.stable}, {f'with the candidate {count}' if beside else count}.")
    if rollout and beside:
        found.append(f"Candidate: revision {rollout.candidate}, step {rollout.step}.")
    scaling = status.autoscaling
    if scaling and scaling.decisions:
        last = scaling.decisions[0]
        found.append(f"Last scaled {last.time} from {last.from_} to {last.to}: {last.reason}")
    found += money.sentences(status)
    if status.batch:
        found.append(_run_fact(status.batch))
    return tuple(found)


def _memory_facts(engine: EngineStatus) -> tuple[str, ...]:
    """What the server was seen to take, and what that makes for ``spec.serving.resources``."""
    memory, resources = engine.memory, engine.proposed_resources
    if memory is None:
        return ()
    device = "" if memory.device_peak_bytes is None else f"; of its GPUs {_mebibytes(memory.device_peak_bytes)}"
    peak, loaded, empty, held = map(_mebibytes, (
        memory.peak_bytes, memory.loaded_bytes, memory.empty_bytes, memory.held_bytes))
    host = (f"{peak} under the measured load, {loaded} with the model loaded, {empty} without; least limit: {held}"
            if memory.peak_bytes else "the host's is not known")
    proposal = f" Proposed for spec.serving.resources: {_quantities(resources)}." if resources else ""
    return (f"Memory of one server: {host}{device}.{proposal}",)


def _quantities(found: ProposedResourcesStatus) -> str:
    return "; ".join(f"{kind} {', '.join(f'{name}: {value}' for name, value in sorted(some.items()))}"
                     for kind, some in (("requests", found.requests), ("limits", found.limits)))


def _mebibytes(size: int) -> str:
    return f"{math.ceil(size / (1 << 20))}Mi"


def _run_fact(run: BatchStatus) -> str:
    shards = f"{run.completed or 0} of {run.shards or 0} shards are done"
    given_up = f", {run.failed} given up" if run.failed else ""
    rows = f", {run.rows_completed or 0} of {run.rows} rows" if run.rows else ""
    speed = f", {run.rows_per_second:g} rows a second" if run.rows_per_second else ""
    cost = f", for {run.cost:g} {run.currency} at most" if run.cost is not None else ""
    return f"Data set: {shards}{given_up}{rows}{speed}{cost}."


def _server_fact(server: ServerStatus) -> str:
    libraries = [f"{one.name} {one.version}" for one in server.libraries or ()]
    backends = ", ".join(server.backends or ()) or "none"
    # An image of language models has no Triton.
    triton = f"Triton backends {backends}" if server.triton or server.backends else ""
    has = [f"Triton {server.triton}" if server.triton else "", *libraries, triton]
    return f"Server image: {server.image} has {', '.join(filter(None, has))}."


def _class_fact(row: ClassStatus) -> str:
    what = " ".join(filter(None, (row.engine, row.precision))) or "no engine yet"
    rate = f", {row.throughput:g} inferences a second each" if row.throughput else ""
    share = f", {row.weight} % of what comes through the Gateway" if row.weight is not None else ""
    state = "ready" if row.ready == "True" else f"not ready ({row.reason})"
    count = f"{row.ready_replicas or 0} of {row.replicas or 0} replicas ready"
    return f"Class {row.name} is {state}: {what}, {count}{rate}{share}. Ask {row.model} for more."


def _way(raw: Mapping[str, Any], now: datetime, headline: str = "") -> tuple[str, ...]:
    """A message that the headline or an earlier line has is not said again."""
    lines: list[str] = []
    for entry in filter(None, (find(raw.get("conditions"), kind) for kind in WAY)):
        message = str(entry.get("message"))
        told = any(line.endswith(f": {message}") for line in (headline, *lines))
        lines.append(f"{_mark(entry)} {entry['type']} {entry.get('reason')}{_since(entry, now)}"
                     f"{', as said above.' if told else f': {message}'}")
    return tuple(lines)


def _mark(entry: Mapping[str, Any]) -> str:
    """Of what is under way the one for what is not known yet: nothing has failed."""
    status = str(entry.get("status"))
    return MARKS.get("Unknown" if status == "False" and entry.get("reason") in UNDER_WAY else status, "?")


def _since(entry: Mapping[str, Any], now: datetime) -> str:
    began = parse_timestamp(entry.get("lastTransitionTime"))
    return f" for {age((now - began).total_seconds())}" if began else ""


def _next(meta: Mapping[str, Any], status: Status, raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Commands for what waits for a person; everything else goes on by itself or says its remedy in its message."""
    def asks(verb: str, *more: str) -> str:
        return plugin(verb, meta["name"], meta["namespace"], *more)

    found = []
    entries = {kind: find(raw.get("conditions"), kind) for kind in WAY}
    reasons = {str(entry.get("reason")) for entry in entries.values()}
    rollout = status.rollout
    if reasons & {Reason.WAITING_FOR_PROMOTION, Reason.WAITING_FOR_SAMPLES} and rollout and rollout.candidate:
        found.append(f"Promote revision {rollout.candidate}: {asks('promote')}")
    if (status.batch and status.batch.failure) or any(
            RETRIES in str(entry.get("message")) for entry in entries.values()):
        found.append(f"Retry what failed, once its cause is fixed: {asks('retry')}")
    drifted = entries[Condition.QUALITY_HELD].get("status") == "False"
    if drifted or find(raw.get("conditions"), Condition.AVAILABLE).get("status") != "True":
        found.extend(f"Go back to revision {back.revision}, which served before: "
                     f"{asks('rollback', back.revision)}" for back in way_back(status)[:1])
    if status.pin and not status.pin.released:
        found.append(f"Follow the spec again: {asks('rollback', '--release')}")
    return tuple(found)
