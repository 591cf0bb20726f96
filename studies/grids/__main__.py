"""Record full grids of serving configurations, and study how well searches do on them.

    python -m grids record resnet18 --precision fp32 --output docs/benchmarks/grids/resnet18-fp32-cpu.json
    python -m grids record --repository build/store/…/model_repository/bert --gpu --title "BERT-base, TensorRT fp16" …
    python -m grids study
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from enginewright_builder.errors import BuilderError
from enginewright_builder.sweep.space import DELAYS_US
from enginewright_builder.system import available_cpus, limit_threads
from grids.grid import Axes

ROOT = Path(__file__).resolve().parents[2]
GRIDS = ROOT / "docs" / "benchmarks" / "grids"


def main(words: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if words is None else words)
    options = _parser().parse_args(words)
    limit_threads(options.threads)
    try:
        return int(options.run(options, words))
    except (BuilderError, ValueError, OSError) as error:
        print(f"grids: {error}", file=sys.stderr)
        return 2


def _record(options: argparse.Namespace, words: Sequence[str]) -> int:
    from grids.models import NAMED, build_repository
    from grids.record import Settings, record

    axes = Axes(max_batch_sizes=options.batches, max_queue_delays_us=options.delays,
                instance_counts=options.instances, concurrencies=options.concurrencies)
    settings = Settings(seconds_per_point=options.seconds_per_point, repeats=options.repeats, loaded=options.loaded,
                        pause_seconds=options.pause_seconds, budget_seconds=options.budget_seconds,
                        gpus=(0,) if options.gpu else ())
    command = f"PYTHONPATH=studies:hack:builders python -m grids {shlex.join(words)}"
    with tempfile.TemporaryDirectory(prefix="enginewright-grid-") as scratch:
        folder, title = options.repository, options.title or str(options.source or options.repository)
        versions: dict[str, str] = {}
        if folder is None:
            source = options.source
            if not options.model and source is None:
                raise ValueError("name a model, or give --source or --repository")
            if options.model:
                make, name = NAMED[options.model]
                source, title = make(Path(scratch)), f"{name}, {options.backend} {options.precision}"
            folder, versions = build_repository(source, Path(scratch) / "build", backend=options.backend,
                                                precision=options.precision, max_batch_size=axes.max_batch_sizes[-1],
                                                gpu=options.gpu)
        grid = record(folder, axes, settings, title=title, command=command, notes=options.note, versions=versions)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(grid.to_json(), encoding="utf-8")
    whole = len(axes.cells())
    short = f"; {grid.missing} of {whole * settings.repeats} measurements are missing" if grid.missing else ""
    print(f"{options.output}: {len(grid.repeats)} of {whole} points{short}")
    return 0


def _study(options: argparse.Namespace, words: Sequence[str]) -> int:
    from grids.study import run

    return run(GRIDS, GRIDS.parent)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="grids", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("record", help="measure every point of a grid on a real tritonserver")
    one.set_defaults(run=_record, threads=available_cpus())
    one.add_argument("model", nargs="?", choices=("minilm", "resnet18"), help="a model that comes with this tool")
    what = one.add_mutually_exclusive_group()
    what.add_argument("--source", type=Path, help="any source that the builder takes: a .onnx file, a folder…")
    what.add_argument("--repository", type=Path, help="one model's folder of a Triton repository, as the builder "
                                                      "writes it (with warm-up data)")
    one.add_argument("--title", default="", help="what the grid calls the model")
    one.add_argument("--backend", default="onnxruntime")
    one.add_argument("--precision", default="fp32")
    one.add_argument("--gpu", action="store_true", help="serve on GPU 0")
    one.add_argument("--output", type=Path, required=True)
    one.add_argument("--batches", type=_numbers, default=(1, 4, 16), help="max_batch_size (default 1,4,16)")
    one.add_argument("--delays", type=_numbers, default=DELAYS_US, help="microseconds")
    one.add_argument("--instances", type=_numbers, default=(1, 2), help="instance counts (default 1,2)")
    one.add_argument("--concurrencies", type=_numbers, default=(1, 2, 4, 8, 16))
    one.add_argument("--seconds-per-point", type=float, default=0.5)
    one.add_argument("--repeats", type=int, default=3, help="of each point, each in a round of its own")
    one.add_argument("--pause-seconds", type=float, default=0.0, help="idle time before each measurement")
    one.add_argument("--budget-seconds", type=float, default=0.0, help="stop cleanly after so long (0: never)")
    one.add_argument("--loaded", type=int, default=64, help="instances that may be in memory at once")
    one.add_argument("--note", action="append", default=[], help="what a reader should know, such as a shared machine")
    two = commands.add_parser("study", help="replay searches over all recorded grids and write the comparison")
    two.set_defaults(run=_study, threads=1)  # its matrices are small
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers such as 1,4,16") from None


if __name__ == "__main__":
    sys.exit(main())
