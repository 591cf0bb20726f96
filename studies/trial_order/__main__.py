"""``python -m trial_order looks | trials | experience | replay``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from trial_order.experience import BENCHMARKS, LOOKS, TABLE, TRIALS, made
from trial_order.replay import PAGE, page
from trial_order.trials import trials


def main() -> None:
    parser = argparse.ArgumentParser(prog="trial_order", description=__doc__)
    parser.add_argument("what", choices=("looks", "trials", "experience", "replay"))
    parser.add_argument("reports", nargs="*", metavar="NAME=build-report.json", help="for trials: reports of builds")
    parser.add_argument("--inputs", type=Path, help="for looks: the folder that has MiniLM as minilm")
    options = parser.parse_args()
    if options.what == "looks":
        if options.inputs is None:
            parser.error("looks needs --inputs")
        from trial_order.looks import write_looks

        write_looks(options.inputs, BENCHMARKS / LOOKS)
    elif options.what == "trials":
        reports = {name: Path(path) for name, _, path in (one.partition("=") for one in options.reports)}
        (BENCHMARKS / TRIALS).write_text(json.dumps(trials(reports), indent=1) + "\n", encoding="utf-8")
    elif options.what == "experience":
        TABLE.write_text(made(), encoding="utf-8")
    else:
        PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
