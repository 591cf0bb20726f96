"""``enginewright-build doctor``: what is here, which engines and precisions can be built with it, and why not others.

The engines themselves answer, as they answer a build, for a model that brings all that an engine may want: a PyTorch
source, calibration data, a server image with every library. So a reason is this machine's.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from enginewright_builder.by_hand import PYTHON_RUNTIMES
from enginewright_builder.contract import EXIT_OK, EXIT_USER, DeviceRequest, Interface, RuntimeRequest
from enginewright_builder.engines.base import BuildContext, Engine
from enginewright_builder.examine import Facts, Library, examine
from enginewright_builder.models.base import SourceModel

ACCELERATORS = ("gpu", "cpu")
_NO_GPU = "no GPU answers here: give the container one (spec.placement.gpu), with a driver that knows this image's CUDA"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One engine in one precision; ``why_not`` is empty where it can be built here."""

    accelerator: str
    backend: str
    precision: str
    why_not: str


def doctor(words: Sequence[str]) -> int:
    """Prints what is here; 0 where at least one engine can be built, else 2."""
    options = _parser().parse_args(words)
    facts = examine()
    found = tuple(verdicts(facts, _engines()))
    if options.json:
        engines = [dataclasses.asdict(one) for one in found]
        print(json.dumps({**dataclasses.asdict(facts), "engines": engines}, indent=2))
    else:
        print("\n".join(text(facts, found)))
    return EXIT_OK if any(not one.why_not for one in found) else EXIT_USER


def _engines() -> Sequence[Engine]:
    from enginewright_builder.engines.registry import all_engines

    return all_engines()


def verdicts(facts: Facts, engines: Iterable[Engine]) -> Iterator[Verdict]:
    with tempfile.TemporaryDirectory() as scratch:
        for engine in engines:
            for accelerator in ACCELERATORS:
                absent = _NO_GPU if accelerator == "gpu" and not facts.devices else ""
                for rung in engine.rungs("auto", _wants_all(accelerator, Path(scratch))):
                    # An engine's own checks may not need the GPU itself, as ONNX Runtime's do not.
                    yield Verdict(accelerator=accelerator, backend=rung.backend, precision=rung.precision,
                                  why_not=rung.unavailable or absent)


class _AnyProgram:
    """Stands for a source that takes batches and that PyTorch can trace; nothing more is asked of it."""

    interface = Interface()

    def torch_program(self, precision: str, batch: int = 0) -> Any:
        return self


def _wants_all(accelerator: str, workspace: Path) -> BuildContext:
    """Of a model that brings whatever an engine may want, for a server that has every library."""
    return BuildContext(device=DeviceRequest(accelerator=accelerator), max_batch_size=1, calibration=({},),
                        runtime=RuntimeRequest(python_runtimes=PYTHON_RUNTIMES),
                        workspace=workspace, progress=lambda fraction, detail: None,
                        source=cast(SourceModel, _AnyProgram()))


def text(facts: Facts, found: Sequence[Verdict]) -> Iterator[str]:
    """For people, a line at a time."""
    for device in facts.devices:
        part = f", slice {device.mig_profile}" if device.mig_profile else ""
        yield _line("GPU", f"{device.name}{part}, {device.memory_bytes / 2**30:.1f} GiB, compute capability "
                           f"{device.capability}")
    if not facts.devices:
        yield _line("GPU", "none")
    yield _line("driver", f"{facts.driver or 'version unknown'}, CUDA up to {facts.cuda}" if facts.cuda else "none")
    yield _line("Python", f"{facts.python} on {facts.architecture}")
    yield _line("C++ compiler", facts.compiler or "none")
    yield _line("Triton", f"{facts.tritonserver}; backends {', '.join(facts.backends)}" if facts.backends else "none")
    for library in facts.libraries:
        yield _line(library.name, _state(library))
    yield from _ability(found)


def _state(library: Library) -> str:
    if not library.version:
        return "none"
    return library.version + (f", but it does not find {', '.join(library.lacks)}" if library.lacks else "")


def _ability(found: Sequence[Verdict]) -> Iterator[str]:
    """One line for each engine and reason, what can be built first."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for one in sorted(found, key=lambda verdict: bool(verdict.why_not)):
        groups.setdefault((one.why_not, one.accelerator, one.backend), []).append(one.precision)
    for (why_not, accelerator, backend), precisions in groups.items():
        answer = "no" if why_not else "yes"
        reason = f": {why_not}" if why_not else ""
        yield _line(f"builds for {accelerator}", f"{answer}, {backend} {', '.join(precisions)}{reason}")


def _line(name: str, value: str) -> str:
    return f"{name:<32} {value}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="enginewright-build doctor",
        description="Print the GPU, driver, libraries and versions that are here, and which engines and precisions can "
                    "be built with them. Exit status: 0 where at least one can, 2 where none can.")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    return parser
