"""``python -m competition record | replay``."""

from __future__ import annotations

import argparse
from pathlib import Path

from enginewright_builder.system import available_cpus, limit_threads

RECORDED = Path(__file__).parents[2] / "docs" / "benchmarks" / "competition" / "minilm-cpu.json"


def main() -> None:
    parser = argparse.ArgumentParser(prog="competition", description=__doc__)
    parser.add_argument("what", choices=("record", "replay"))
    if parser.parse_args().what == "record":
        limit_threads(available_cpus())  # before PyTorch is imported
        from competition.record import record

        record(RECORDED)
        return
    from competition.replay import table

    print(table(RECORDED))


if __name__ == "__main__":
    main()
