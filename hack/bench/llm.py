"""``make bench-llm``: one run of the real ``enginewright-build --task generate`` on SmolLM2, and, with a larger model
of made-up weights, the configuration that serves fastest beside vLLM's own settings.

Writes one JSON file, after each step; ``python -m bench.llm_page`` renders the readable page. Each part ends within its
seconds, and what was measured until then is kept.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shlex
import shutil
import signal
import sys
import tarfile
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import llm_build, llm_quantised, llm_speed
from bench.machine import hardware, processor, versions
from enginewright_builder.generate.packages import version

log = logging.getLogger("bench")
LINK_SECONDS = 0.5


def main() -> int:
    given = _parser().parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: SIGTERM"))
    given.output.parent.mkdir(parents=True, exist_ok=True)
    machine = hardware() if given.accelerator == "gpu" else processor()
    result = _earlier(given.output, {"hardware": machine, "versions": {**versions(), "vllm": version()}})
    result["command"] = [*result.get("command", []), command(given)]
    parts: Mapping[str, Callable[[], Iterator[None]]] = {
        "build": lambda: llm_build.run(given, result, "build"),
        "checkpoints": lambda: llm_build.run(given, result, "checkpoints", given.forms.split(",")),
        "sweep": lambda: llm_speed.sweep(given, result),
        "pairs": lambda: llm_speed.pairs(given, result)}
    with kept_logs(given.logs):
        for name in given.parts.split(","):
            try:
                for _ in parts[name]():
                    _save(result, given.output)
            except Exception as error:
                traceback.print_exc()
                result.setdefault("failed", []).append(
                    {"part": name, "error": f"{type(error).__name__}: {error}"[:2000]})
            _save(result, given.output)
    return 1 if result.get("failed") else 0


def _earlier(output: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """What earlier parts found on this machine. Raises ``ValueError`` where the file is of another."""
    if not output.exists():
        return facts
    found: dict[str, Any] = json.loads(output.read_text())
    if different := [key for key, value in facts.items() if found[key] != value]:
        raise ValueError(f"{output} is of other {' and '.join(different)}: name another --output")
    return found


def _save(result: dict[str, Any], output: Path) -> None:
    part = output.with_suffix(".part")
    part.write_text(json.dumps(result, indent=1) + "\n")
    part.replace(output)


@contextmanager
def kept_logs(archive: Path | None) -> Iterator[None]:
    """Packs the logs of all servers that start meanwhile into ``archive``: each removes its own as it ends."""
    place = Path(tempfile.mkdtemp(prefix="ew-"))  # sockets of servers lie below it, and their paths are to be short
    (place / "logs").mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(place)
    over = threading.Event()

    def look() -> None:
        while not over.wait(LINK_SECONDS):
            for file in place.glob("enginewright-vllm-*/vllm.log"):
                kept = place / "logs" / f"{file.stat().st_mtime_ns}-{file.parent.name}.log"
                if not any(one.samefile(file) for one in (place / "logs").iterdir()):
                    os.link(file, kept)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        if archive:
            with tarfile.open(archive, "w:gz") as packed:
                packed.add(place / "logs", "logs")
        tempfile.tempdir = None
        os.environ.pop("TMPDIR")
        shutil.rmtree(place, ignore_errors=True)


def command(given: argparse.Namespace) -> str:
    """What repeats this run: options at their defaults are left out."""
    defaults = _parser().parse_args(["--output", str(given.output)])
    changed = {name: value for name, value in vars(given).items()
               if value != getattr(defaults, name) and name not in ("inputs", "logs", "output")}
    return shlex.join(["make", "bench-llm", *([f"ARGS={shlex.join(_words(changed))}"] if changed else [])])


def _words(changed: Mapping[str, object]) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in changed.items()]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench.llm", description=__doc__)
    parser.add_argument("--inputs", type=Path, default=Path("/tmp/bench-llm/models"),  # noqa: S108 - unpack-llm.sh's
                        help="folder of the folder smollm2")
    parser.add_argument("--parts", default="build,sweep,pairs",
                        help="of build, checkpoints, sweep, pairs; they add to one file")
    parser.add_argument("--forms", default=",".join(llm_quantised.FORMS), help="of the quantised copies of checkpoints")
    parser.add_argument("--accelerator", default="gpu", choices=("gpu", "cpu"))
    parser.add_argument("--prompts", type=int, default=300)
    parser.add_argument("--answer-tokens", type=int, default=64)
    parser.add_argument("--tolerances", default="0.01,0.05,0.1", help="the first above the noise floor is the build's")
    parser.add_argument("--build-seconds", type=int, default=480)
    parser.add_argument("--sweep-seconds", type=float, default=300.0)
    parser.add_argument("--pairs-seconds", type=float, default=330.0)
    parser.add_argument("--load-seconds", type=float, default=20.0, help="of each load of the larger model")
    parser.add_argument("--ttft-ms", type=float, default=1000.0, help="what the larger model's requests are to keep")
    parser.add_argument("--tpot-ms", type=float, default=25.0)
    parser.add_argument("--input-tokens", type=int, default=256)
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=4096, help="width of the larger model")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--logs", type=Path, help=".tar.gz of the logs of all servers")
    parser.add_argument("--output", type=Path, required=True)
    return parser


if __name__ == "__main__":
    sys.exit(main())
