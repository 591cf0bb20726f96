"""The monitor of one replica: every few seconds it scores what was sampled and asks for more.

``python3 -m enginewright_builder.quality.monitor REFERENCE --model=NAME --traces=DIR …``; run by the package's own
``__main__``, which lives on if this does not.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from enginewright_builder.contract import CAPTURE_SECRET, COMPUTED, ContractError, QualityReport
from enginewright_builder.engine_store.signing import read_keys
from enginewright_builder.errors import BuilderError, brief, lacks_memory
from enginewright_builder.logs import log_to_stderr
from enginewright_builder.quality.capture import CaptureRules, Capturing
from enginewright_builder.quality.cluster_name import RESOLV_CONF, absolute_name
from enginewright_builder.quality.mirror import Mirror
from enginewright_builder.quality.page import Snapshot, idle, served
from enginewright_builder.quality.reference import About, Reference, read_about
from enginewright_builder.quality.tap import Tap, TapClosedError
from enginewright_builder.quality.trace import Expected, Traced
from enginewright_builder.quality.window import Window
from enginewright_builder.shapes import takes_batches
from enginewright_builder.system import available_cpus

PERIOD: Final = 5.0
log = logging.getLogger(__name__)


class Monitor:
    """``clock`` is monotonic, in seconds. ``reference`` may be what is known of one whose answers cannot be compared:
    requests are captured alone then. ``capturing`` may be the words that say why requests that should be captured
    cannot be."""

    def __init__(self, reference: Reference | About, tap: Tap, window: Window, clock: Callable[[], float],
                 mirror: Mirror | None = None, capturing: Capturing | str = "") -> None:
        self._about = reference if isinstance(reference, About) else reference.about
        self._reference = None if isinstance(reference, About) else reference
        self._tap, self._window, self._clock, self._mirror = tap, window, clock, mirror
        self._capturing = capturing if isinstance(capturing, Capturing) else None
        self._uncaptured = capturing if isinstance(capturing, str) else ""
        self._opened = clock() - PERIOD
        self._requests = self._failed = 0
        self._newest: float | None = None
        self._closed = self._failing = ""

    def look(self) -> None:
        """Scores what was traced, then lets more be traced: a source model that is slow is asked less often."""
        if self._mirror:
            self._mirror.turn()
        for traced in self._tap.drain():
            self._requests += 1
            if self._reference:
                self._score(self._reference, traced)
            if self._mirror:
                self._mirror.send(traced)
            if self._capturing:
                self._capturing.add(traced.inputs)
        if self._capturing:
            self._capturing.turn()
        now = self._clock()
        try:
            self._tap.open(min(now - self._opened, 2 * PERIOD))
            self._closed = ""
        except TapClosedError as error:
            self._closed = str(error)
        self._opened = now

    def _score(self, reference: Reference, traced: Traced) -> None:
        """One request that cannot be scored, for a refusal of ONNX Runtime or of a user's metric or lack of memory,
        must not cost the window. Messages of such errors quote values, so that only their class is logged."""
        try:
            if self._window.add(reference.answer(traced.inputs), traced.outputs):
                self._newest = self._clock()
            self._failing = ""
        except Exception as error:
            self._failed += 1
            name = type(error).__name__
            if name != self._failing:
                log.warning("a sampled request cannot be scored: %s", name)
            self._failing = name

    def snapshot(self) -> Snapshot:
        about, scores, mirror = self._about, tuple(self._window.scores), self._mirror
        unscored = "" if self._reference else about.problem
        newest = self._capturing.newest if self._capturing else None
        failing = f"sampled requests cannot be scored: {self._failing}" if self._failing else ""
        age = 0.0 if self._newest is None else self._clock() - self._newest
        report = QualityReport(metric=about.metric, tolerance=about.tolerance, samples=len(scores),
                               total=math.fsum(scores), requests=self._requests, age_seconds=round(age, 1),
                               problem=self._closed or unscored or failing,
                               mirrored=mirror.mirrored if mirror else 0,
                               agreed=mirror.agreed if mirror else 0.0,
                               targets=tuple(sorted(mirror.targets)) if mirror else (),
                               captured=newest.samples if newest else 0,
                               captured_since=newest.since if newest else 0.0,
                               captured_until=newest.until if newest else 0.0,
                               capture_digest=newest.digest if newest else "",
                               capture_problem=self._capturing.failed if self._capturing
                               else self._uncaptured)
        return Snapshot(report=report, skipped=self._tap.skipped + self._failed)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    log_to_stderr(logging.INFO)
    try:
        about = read_about(options.reference)
    except (OSError, ValueError, ContractError) as error:
        about = About.nothing()
        return idle(about.metric, about.tolerance, f"the engine's reference cannot be read: {error}", options.port)
    if about.problem and (about.unseen or options.captures is None):
        return idle(about.metric, about.tolerance, about.problem, options.port)
    try:  # without the source model in memory where nothing is compared with it
        reference: Reference | About = about if about.problem else Reference(options.reference, about, available_cpus())
    except Exception as error:  # ONNX Runtime's own classes, a user's metric, want of memory
        problem = f"the source model does not run here: {_explained(error)}"
        return idle(about.metric, about.tolerance, problem, options.port)
    monitor = _monitor(options, about, reference)
    latest = monitor.snapshot()
    log.info("looks at %s's live requests, at most %d a minute: %s", options.model, options.per_minute,
             about.problem or f"answers are scored by {about.metric}")
    with served(lambda: latest, options.port):
        while True:
            began = time.monotonic()
            monitor.look()
            latest = monitor.snapshot()
            time.sleep(max(0.0, PERIOD - (time.monotonic() - began)))


def _monitor(options: argparse.Namespace, about: About, reference: Reference | About) -> Monitor:
    tap = Tap(options.model, options.traces, share=options.share, per_minute=options.per_minute,
              port=options.triton_port, computed=f"{options.model}{COMPUTED}" if options.cached else "",
              expected=Expected.of(about.interface))
    compared = None if isinstance(reference, About) else reference
    window = _window(compared, options.window) if compared else Window(about.metric, options.window)
    mirror = _mirror(options, compared) if compared and options.mirror else None
    return Monitor(reference, tap, window, time.monotonic, mirror, capturing=_capturing(options, about))


def _mirror(options: argparse.Namespace, reference: Reference) -> Mirror | None:
    """None where the Service has no name that the cluster alone answers for: requests are not sent on a guess."""
    host = absolute_name(options.mirror, os.environ.get("POD_NAMESPACE", ""), RESOLV_CONF)
    if not host:
        log.warning("no live request is sent to a candidate: the search line of %s has no NAMESPACE.svc.DOMAIN of this "
                    "pod's namespace, which the absolute name of Service %s needs", RESOLV_CONF, options.mirror)
        return None
    return Mirror(host, options.model, _window(reference, 1), interface=reference.about.interface,
                  port=options.triton_port, own=os.environ.get("POD_IP", ""))


def _capturing(options: argparse.Namespace, about: About) -> Capturing | str:
    """No words where no request is to be captured. Without the key nothing is: no build reads what is unsigned."""
    if options.captures is None:
        return ""
    try:
        keys = read_keys(options.capture_keys, CAPTURE_SECRET)
    except BuilderError as error:
        log.warning("no request is captured: %s", error)
        return str(error)
    if keys is None:
        return "no key is given"
    rules = CaptureRules(of=options.capture_of, revision=options.revision, samples=options.capture_samples,
                         most_bytes=options.capture_bytes, interval=options.capture_interval,
                         retention=options.capture_retention)
    log.info("captures at most %d samples in %g s into %s", rules.samples, rules.interval, options.captures)
    return Capturing(options.captures, rules, keys, time.time, batched=takes_batches(about.interface))


def _window(reference: Reference, length: int) -> Window:
    return Window(reference.metric, length, reference.about.usual, batched=reference.batched)


def _explained(error: Exception) -> str:
    remedy = "; raise spec.quality.resources.limits.memory" if lacks_memory(error) else ""
    return f"{brief(error)}{remedy}"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m enginewright_builder.quality", description=__doc__)
    parser.add_argument("reference", type=Path, help="<store>/<fingerprint>/reference")
    parser.add_argument("--model", required=True, help="the name that Triton serves it as")
    parser.add_argument("--traces", type=Path, required=True, help="folder of the server's trace file, in memory")
    parser.add_argument("--share", type=float, required=True, help="of requests that is sampled, 0 to 1")
    parser.add_argument("--per-minute", type=int, required=True, help="most requests sampled in a minute")
    parser.add_argument("--window", type=int, required=True, help="newest requests that agreement is taken over")
    parser.add_argument("--port", type=int, required=True, help="of /quality and /metrics")
    parser.add_argument("--cached", action="store_true", help="the server has a response cache: leave its answers out")
    parser.add_argument("--mirror", default="", help="name of the Service that leads to the candidate of a rollout")
    parser.add_argument("--captures", type=Path, help="folder of the store that sampled requests are captured into")
    parser.add_argument("--capture-keys", default="", help="folder of the keys that captures are signed with")
    parser.add_argument("--capture-of", default="", help="NAMESPACE/MODEL")
    parser.add_argument("--capture-samples", type=int, default=0, help="most samples of a capture")
    parser.add_argument("--capture-bytes", type=int, default=0, help="most bytes of their tensors")
    parser.add_argument("--capture-interval", type=float, default=0.0, help="seconds of requests in a capture")
    parser.add_argument("--capture-retention", type=float, default=0.0, help="seconds until it is removed")
    parser.add_argument("--revision", default="", help="of the replica")
    parser.add_argument("--triton-port", type=int, default=8000, help="of the server's HTTP endpoint")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
