"""What do the server's image and this one have? Asked before anything is built, without a device.

The ask Job's pod has three containers. The first, of the builder's image, leaves the program that looks; the second, of
the server's image, runs it with its own ``python3``; the last, of the builder's image again, reads what that one wrote
and tells it with what is here::

    python3 -m enginewright_builder.ask --leave DIR
    PYTHONPATH=DIR python3 -m enginewright_builder.examine FILE
    python3 -m enginewright_builder.ask --facts FILE

Standard library only. The server's image is of the user's choice: what it wrote is read as a stranger's words. It can
say wrong things of itself, and nothing else.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from enginewright_builder import examine, pod
from enginewright_builder.contract import LIBRARIES, Facts, ImageFacts, Outcome
from enginewright_builder.copied import copy_modules
from enginewright_builder.engine_store.manifest import plain_file
from enginewright_builder.errors import UserError, classify, exit_code
from enginewright_builder.foreign_json import parsed
from enginewright_builder.pod import device, libraries
from enginewright_builder.termination import leave_outcome

# A real image's facts are some 3 KB.
FACTS_BYTES = 64 << 10
# So that the facts of two images fit into a termination message.
MOST_BACKENDS, MOST_CACHES, MOST_BRANCHES, MOST_CLAUSES = 12, 4, 8, 64
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,31}")
_TRITON = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~ -]{0,39}")
_CUDA = re.compile(r"cuda>=(\d{1,3})\.(\d{1,3})(?:\.\d+)*")
_BRANCH = re.compile(r"driver>=(\d{3,4})(?:\.\d+)*")


def leave(folder: Path) -> None:
    """The program that looks, as a package of its own. Raises :class:`OSError`."""
    copy_modules(folder, (examine, pod, device, libraries))


def ask(path: Path) -> Outcome:
    """Never raises for what the server's image wrote: that is the outcome."""
    try:
        facts = Facts(server=read_facts(path), builder=image_facts(dataclasses.asdict(examine.examine())))
    except BaseException as error:
        return Outcome(kind="ask", ok=False, error=classify(error).report())
    return Outcome(kind="ask", ok=True, facts=facts)


def read_facts(path: Path) -> ImageFacts:
    """What the server's image wrote. Raises :class:`UserError`."""
    try:
        with plain_file(path) as reader:
            data = reader.read(FACTS_BYTES + 1)
    except OSError as error:
        raise _unfit(f"what it has cannot be read: {error.strerror}") from error
    if len(data) > FACTS_BYTES:
        raise _unfit(f"it wrote more than {FACTS_BYTES:,} bytes of what it has")
    try:
        return image_facts(parsed(data.decode()))
    except ValueError as error:
        raise _unfit(f"what it wrote of itself is not valid: {error}") from error


def image_facts(found: Any) -> ImageFacts:
    """Of what :mod:`~enginewright_builder.examine` tells, as far as the operator has a use for it. Raises
    :class:`ValueError`."""
    if not isinstance(found, Mapping):
        raise ValueError("expected an object")
    cuda, drivers = _asked(found)
    return ImageFacts(
        architecture=_text(found, "architecture", _WORD), python=_text(found, "python", _WORD),
        tritonserver=_text(found, "tritonserver", _TRITON), backends=_parts(found, "backends", MOST_BACKENDS),
        libraries=_libraries(found.get("libraries")), cuda=cuda, drivers=drivers,
        caches=_parts(found, "caches", MOST_CACHES) if "caches" in found else None)


def _unfit(why: str) -> UserError:
    return UserError("ServerImageUnfit", f"the server image was asked what it has, and {why}",
                     field="spec.serving.image", remedy="name an image that has Triton Inference Server, as NVIDIA's "
                                                        "and Enginewright's own do")


def _text(found: Mapping[str, Any], name: str, allowed: re.Pattern[str]) -> str:
    value = found.get(name, "")
    if not isinstance(value, str) or (value and not allowed.fullmatch(value)):
        raise ValueError(f"{name}: got {_shown(value)}")
    return value


def _shown(value: object) -> str:
    """Short, and without what a terminal obeys."""
    return (ascii(value) if isinstance(value, str) else json.dumps(value, default=str))[:60]


def _parts(found: Mapping[str, Any], field: str, most: int) -> tuple[str, ...]:
    names = found.get(field)
    if not isinstance(names, list | tuple) or len(names) > most:
        raise ValueError(f"{field}: expected a list of at most {most} names, got {_shown(names)}")
    for name in names:
        if not isinstance(name, str) or not _WORD.fullmatch(name):
            raise ValueError(f"{field}: got {_shown(name)}")
    return tuple(sorted(set(names)))


def _libraries(found: object) -> dict[str, str]:
    """Versions of those that matter and are there, in their order."""
    if not isinstance(found, list | tuple) or not all(isinstance(entry, Mapping) for entry in found):
        raise ValueError(f"libraries: expected a list of objects, got {_shown(found)}")
    versions = {entry["name"]: _text(entry, "version", _WORD) for entry in found
                if isinstance(entry.get("name"), str) and entry["name"] in LIBRARIES}
    return {name: version for name in LIBRARIES if (version := versions.get(name))}


def _asked(found: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The least CUDA, and branches of drivers that do without: of NVIDIA's ``NVIDIA_REQUIRE_CUDA``, which lists ways to
    fulfil it (``cuda>=12.6 brand=tesla,driver>=535,driver<536``). Where that says nothing, the image's own CUDA in its
    first version, for a driver runs all of one major version; none where the image helps an older driver itself."""
    clauses = str(found.get("cuda_asked") or "")[:FACTS_BYTES].split()[:MOST_CLAUSES]
    least = [(int(match[1]), int(match[2])) for clause in clauses if (match := _CUDA.fullmatch(clause.split(",")[0]))]
    branches = sorted({match[1] for clause in clauses for part in clause.split(",")
                       if (match := _BRANCH.fullmatch(part))})
    if least:
        return "{}.{}".format(*min(least)), tuple(branches[-MOST_BRANCHES:])
    own = re.match(r"(\d{1,3})\.", str(found.get("cuda_version") or ""))
    return (f"{own[1]}.0", ()) if own and found.get("cuda_compat") is False else ("", ())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m enginewright_builder.ask", description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--leave", type=Path, metavar="DIR", help="write the examining program into this folder")
    chosen.add_argument("--facts", type=Path, metavar="FILE", help="output of that program in the server's image")
    options = parser.parse_args(arguments)
    if options.leave:
        leave(options.leave)
        return 0
    outcome = ask(options.facts)
    print(outcome.to_json())
    leave_outcome(outcome)
    return exit_code(outcome)


if __name__ == "__main__":
    sys.exit(main())
