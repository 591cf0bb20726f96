"""``python -m trial_order looks | experience | replay``."""

from __future__ import annotations

import argparse
from pathlib import Path

from trial_order.experience import BENCHMARKS, LOOKS, TABLE, made
from trial_order.replay import PAGE, page


def main() -> None:
    parser = argparse.ArgumentParser(prog="trial_order", description=__doc__)
    parser.add_argument("what", choices=("looks", "experience", "replay"))
    parser.add_argument("--inputs", type=Path, help="for looks: the folder that has MiniLM as minilm")
    options = parser.parse_args()
    if options.what == "looks":
        if options.inputs is None:
            parser.error("looks needs --inputs")
        from trial_order.looks import write_looks

        write_looks(options.inputs, BENCHMARKS / LOOKS)
    elif options.what == "experience":
        TABLE.write_text(made(), encoding="utf-8")
    else:
        PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
