"""What the next optimisation would buy, by Amdahl's law, or that another replica is the cheaper step. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from enginewright_builder.contract import Bound
from enginewright_builder.measure.layers import Layers

Step = Literal["engine", "copies", "transport", "replica"]
# An optimisation that could at best buy less is not worth its engineering: a replica doubles what is served.
WORTHWHILE = 1.25


@dataclass(frozen=True, kw_only=True)
class NextStep:
    """``gain`` is the most that the step can buy: latency now divided by latency after it. 1 for a replica, which
    buys throughput, not latency."""

    step: Step
    gain: float
    text: str


def next_step(layers: Layers, *, attained: float | None = None, bound: Bound = "") -> NextStep:
    """The step with the largest possible gain, each alone, taken to its limit.

    ``attained`` is the share of the model's compute time that the roofline explains, 0 to 1: an engine that reached the
    roofline would take that share of the time. None when it was not measured: nothing is then promised of the engine.
    Queueing is no optimisation's to take away: it ends where load and capacity meet, with a replica.
    """
    reducible: dict[Step, float] = {
        "engine": layers.compute_ms * (1 - min(1.0, attained)) if attained is not None else 0.0,
        "copies": layers.input_output_ms, "transport": layers.transport_ms}
    gains = {step: amdahl(layers.total_ms, saved) for step, saved in reducible.items()}
    step = max(gains, key=lambda name: gains[name])
    if gains[step] >= WORTHWHILE:
        return NextStep(step=step, gain=gains[step], text=_worthwhile(step, gains[step], attained, bound))
    return NextStep(step="replica", gain=1.0, text=_exhausted(gains[step], layers, attained))


def amdahl(total: float, saved: float) -> float:
    """How many times as fast when ``saved`` of ``total`` vanishes; 1 for a total of 0. ``saved`` below ``total``."""
    return total / (total - saved) if total > saved >= 0 else 1.0


def _worthwhile(step: Step, gain: float, attained: float | None, bound: Bound) -> str:
    most = f"at most {gain:.1f}× lower latency"
    if step == "engine":
        why = ("most of its time is spent outside of its matrix products" if bound == "overhead"
               else "better kernels, fusion or memory layout are the way")
        return (f"The next optimisation is the engine: it runs at {attained or 0:.0%} of what the roofline allows, and "
                f"reaching it would buy {most}; {why}.")
    if step == "copies":
        return f"The next optimisation is the copying of tensors: without it a request would have {most}."
    return f"The next optimisation is the way to the server: without it a request would have {most}."


def _exhausted(best: float, layers: Layers, attained: float | None) -> str:
    known = "" if attained is not None else " (the engine's own limit was not measured)"
    text = (f"The runway is exhausted: the best further optimisation could buy at most {best:.2f}× lower "
            f"latency{known}. Another replica is the cheaper step for throughput")
    if layers.share("queue") >= 1 / 3:
        return f"{text}, and for latency too, since {layers.share('queue'):.0%} of a request's time is queueing."
    return f"{text}."
