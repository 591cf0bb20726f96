"""What users do: kubectl, the one that belongs to the local cluster."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import binaries
from support.dry_run import apiserver


@dataclass(frozen=True)
class Kubectl:
    """``namespace`` is where commands work."""

    kubeconfig: Path
    namespace: str = "default"

    def run(self, *arguments: str, stdin: Any = None) -> subprocess.CompletedProcess[str]:
        """``stdin`` is an object, given as JSON. The exit status is the caller's to look at."""
        program = [str(binaries.node_program("kubectl")), f"--kubeconfig={self.kubeconfig}", "-n", self.namespace]
        text = json.dumps(stdin) if stdin is not None else None
        return subprocess.run([*program, *arguments], input=text, capture_output=True, text=True, timeout=240,
                              check=False)

    def __call__(self, *arguments: str, stdin: Any = None) -> str:
        """Its output; an :class:`AssertionError` with what it said when it failed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def apply(self, items: Sequence[Any]) -> None:
        """All of them, in their order, by one command."""
        self("apply", "-f", "-", stdin={"apiVersion": "v1", "kind": "List", "items": items})

    def admits(self, body: Any) -> str:
        """What the apiserver says against ``body`` (errors and warnings), empty when it would be taken as it is.
        Nothing is kept."""
        return apiserver(self.kubeconfig).said_against(body, self.namespace)

    def complaints(self, bodies: Mapping[str, Any]) -> dict[str, str]:
        """What the apiserver says against each of ``bodies``, by its name there; of those alone that it would not take
        as they are."""
        return {name: said for name, body in bodies.items() if (said := self.admits(body))}
