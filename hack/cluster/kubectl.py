"""kubectl, as the node runs it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cluster import binaries
from cluster.steps import ClusterError


def kubectl(kubeconfig: Path, *arguments: str, text: str | None = None, log: Path | None = None) -> str:
    """Run kubectl and return what it printed.

    Raises:
        ClusterError: it failed; the message holds its own, and `log` goes with it.
    """
    command = (str(binaries.node_program("kubectl")), f"--kubeconfig={kubeconfig}", *arguments)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"kubectl {' '.join(arguments)} failed: {done.stderr.strip()}", log)
    return done.stdout
