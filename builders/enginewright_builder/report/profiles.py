"""The slowest layers of the engines that serve, in words for the page. Pure."""

from __future__ import annotations

from enginewright_builder.measure.profile import EngineProfile
from enginewright_builder.report.words import BACKENDS, full_name, microseconds

PERFETTO = "ui.perfetto.dev"


def sentence(profile: EngineProfile) -> str:
    """What the table is of, or why there is none."""
    name = full_name(profile.name)
    if profile.problem:
        return f"{name} has no profile: {profile.problem}."
    rows = len(profile.layers)
    shown = "" if not rows else (f" Its slowest {rows} of {profile.layer_count} layers:" if rows < profile.layer_count
                                 else f" Its {rows} layers:" if rows > 1 else " Its one layer:")
    library = BACKENDS.get(profile.library, profile.library)
    return (f"{name} took {microseconds(profile.run_microseconds)} for a batch of {profile.batch}, the median of "
            f"{profile.runs} runs under {library}'s profiler, which slows them down.{shown}")
