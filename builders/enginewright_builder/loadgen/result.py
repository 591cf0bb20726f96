"""``mlperf.json``: what LoadGen said of an engine in each scenario."""

from __future__ import annotations

from dataclasses import dataclass

from enginewright_builder.loadgen.logs import Run

RESULT_FILE = "mlperf.json"


@dataclass(frozen=True, kw_only=True)
class ScenarioResult:
    """``run`` is the one that counts, ``runs`` are all, as they were made. ``samples_per_request`` is how many went
    in one request at most; ``in_flight`` how many requests of ``Offline`` were on their way at once, 0 elsewhere."""

    scenario: str
    run: Run
    runs: tuple[Run, ...]
    samples_per_request: int
    in_flight: int = 0


@dataclass(frozen=True, kw_only=True)
class MlperfResult:
    """``seconds`` is how long each run that counts had to be; ``official``: as long as MLPerf asks. ``origin`` of the
    samples is ``given`` or ``synthetic``. ``server`` is Triton's version, ``url`` its address where it ran before.
    ``client`` is the machine that LoadGen ran on. ``latency_ms``: what ``Server`` was held to; 0 where it was not
    asked for."""

    model_name: str
    fingerprint: str
    created: str
    command: str
    loadgen: str
    server: str
    url: str
    client: str
    cores: int
    samples: int
    origin: str
    seconds: float
    official: bool
    latency_ms: int
    scenarios: tuple[ScenarioResult, ...]
    version: int = 1
