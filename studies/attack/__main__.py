"""Run the attack drill: ``make attack-drill``. It writes docs/benchmarks/attack.json; it fails where a bound broke.

It runs in a network namespace of its own, where the addresses of all pods are this machine: no packet leaves it.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from attack.cast import NETWORK, Cast
from bench.machine import host
from cluster.bare import running
from enginewright.clients.credentials import load_configuration
from enginewright.clients.kube import KubeClient

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "docs" / "benchmarks" / "attack.json"
INSIDE = "ENGINEWRIGHT_ATTACK_DRILL"
NAMESPACE_NAME = "drill"


def main(words: Sequence[str] | None = None) -> int:
    """0 where honest models are scaled within 2 s, the Lease is kept and the memory suffices."""
    parser = argparse.ArgumentParser(prog="attack", description=__doc__)
    for name, value in asdict(Cast()).items():
        parser.add_argument(f"--{name}", type=int, default=value, help="default %(default)s")
    parser.add_argument("--seconds", type=float, default=40.0, help="of each act (default %(default)s)")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args(words)
    if INSIDE not in os.environ:
        _enter(list(sys.argv[1:] if words is None else words))
    # Stopped by a time limit, it stops what it started, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cast = Cast(options.honest, options.pages, options.silent, options.redirect)
    with tempfile.TemporaryDirectory(prefix="attack-") as scratch:
        found = asyncio.run(_run(Path(scratch), cast, options.seconds))
    limit = _memory_limit()
    found = {
        "command": f'make attack-drill ARGS="{_words(cast, options.seconds)}"',
        "recorded": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "hardware": {**host(), "load_at_the_end": os.getloadavg()[0]},
        "cast": asdict(cast), "memory_limit": limit, **found,
    }
    options.output.write_text(json.dumps(found, indent=1) + "\n")
    broken = [said for act in found["acts"] for said in _broken(act, limit)]
    print("\n".join(broken) or "all bounds hold")
    return 1 if broken else 0


def _enter(words: list[str]) -> None:
    """Replaces this process by one in a network of its own."""
    route = f'ip link set lo up && ip route add local {NETWORK} dev lo && exec "$@"'
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    command = ["unshare", "--net", *user, "sh", "-c", route, "sh", sys.executable, "-m", "attack", *words]
    os.execvpe(command[0], command, {**os.environ, INSIDE: "1"})  # noqa: S606


async def _run(folder: Path, cast: Cast, seconds: float) -> dict[str, Any]:
    from attack.drill import drill
    from support.apiserver import NAMESPACE, install_crd, manifest
    from support.control_plane import LEADS, operator_credentials

    with running(folder / "control-plane", controllers=True) as kubeconfig:
        await install_crd(kubeconfig)
        operators = await operator_credentials(kubeconfig, LEADS)
        async with KubeClient(await load_configuration(str(kubeconfig))) as kube:
            body = manifest("v1", "Namespace", NAMESPACE_NAME)
            await kube._json("create", NAMESPACE, NAMESPACE.path(None), body=body)
            return await drill(kubeconfig, operators, kube, NAMESPACE_NAME, folder, cast, seconds)


def _words(cast: Cast, seconds: float) -> str:
    return " ".join(f"--{name} {value:g}" for name, value in {**asdict(cast), "seconds": seconds}.items())


def _memory_limit() -> str:
    values = yaml.safe_load((ROOT / "charts" / "enginewright" / "values.yaml").read_text())
    return str(values["resources"]["limits"]["memory"])


def _broken(act: dict[str, Any], limit: str) -> list[str]:
    mebibytes = int(limit.removesuffix("Mi"))
    said = []
    if act["within_2_s"] < act["breaches"]:
        said.append(f"{act['breaches'] - act['within_2_s']} of {act['breaches']} breaches were not answered within 2 s")
    if act["lease"]["holders"] != 1 or act["lease"]["longest_since_renewal_seconds"] > 10:
        said.append(f"the Lease was not held throughout: {act['lease']}")
    if act["operator_peak_mib"] > mebibytes:
        said.append(f"the operator took {act['operator_peak_mib']} MiB of {limit}")
    if act["hostile"].get("redirects_followed"):
        said.append(f"{act['hostile']['redirects_followed']} redirects were followed")
    return [f"{act['act']}: {one}" for one in said]


if __name__ == "__main__":
    sys.exit(main())
