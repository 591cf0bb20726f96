"""``make e2e-rollout``: what does a rollout cost those who send requests? Nothing may."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console

from demo import __main__ as demo
from demo.shell import CLUSTER, ROOT, Kube, StepError, run
from rollouts.cluster import Corner
from rollouts.sequence import FAULTS, Wanted, drill

OUTPUT = ROOT / "build" / "rollout"

console = Console(highlight=False)


def main() -> int:
    options = _parser().parse_args()
    run(CLUSTER, "up", quiet=False, timeout=1800)
    kube = Kube.of_cluster()
    images = demo.load_images()
    demo.install(kube, images)
    corner = Corner(kube, images["builder"])
    wanted = Wanted(equal=options.equal, bad=options.bad, kills=options.kills, requests=options.requests,
                    rate=options.rate, max_surge=options.max_surge, faults=options.faults)
    try:
        summary = drill(corner, wanted, OUTPUT, console)
    except StepError as failure:
        console.print(f"[bold red]The drill stopped:[/] {failure}", markup=True)
        return 1
    finally:
        if not options.keep:
            corner.remove()
    console.print_json(data=vars(summary))
    return 0 if summary.good else 1


def _parser() -> argparse.ArgumentParser:
    usual = Wanted()
    parser = argparse.ArgumentParser(prog="rollouts", description=__doc__)
    parser.add_argument("--equal", type=int, default=usual.equal, help="sound candidates (default %(default)s)")
    parser.add_argument("--bad", type=int, default=usual.bad, help="bad ones, of all kinds (default %(default)s)")
    parser.add_argument("--faults", type=lambda text: text.split(","), default=FAULTS, metavar="NAME[,NAME…]",
                        help=f"kinds of bad candidates (default {','.join(FAULTS)})")
    parser.add_argument("--kills", type=int, default=usual.kills, help="replicas killed (default %(default)s)")
    parser.add_argument("--requests", type=int, default=usual.requests, help="at least so many (default %(default)s)")
    parser.add_argument("--rate", type=float, default=usual.rate, help="requests a second (default %(default)s)")
    parser.add_argument("--max-surge", type=int, default=usual.max_surge,
                        help="spec.rollout.maxSurge (default %(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave the namespace as it is at the end")
    return parser


if __name__ == "__main__":
    sys.exit(main())
