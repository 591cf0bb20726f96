"""Steps of a build in words. ``status.build.step``, logs and traces have the builder's own names."""

from __future__ import annotations

from typing import Final

WORDS: Final = {
    "resolve": "looking at the source",
    "fetch": "opening the source",
    "export": "exporting to ONNX",
    "ladder": "trying candidates",
    "finalists": "keeping the best candidates",
    "profile": "profiling the engine's layers",
    "sweep": "trying settings of the server",
    "appraise": "comparing with plain serving",
    "repository": "writing the model repository",
    "verify-load": "loading the engine in the server",
    "publish": "publishing the engine",
    "done": "published",
}


def in_words(step: str) -> str:
    """The name itself of a step that another release of the builder has."""
    return WORDS.get(step, step)
