"""``kubectl optimisedmodel``, found and run by the real kubectl."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import yaml

from cluster import binaries

ROOT = Path(__file__).resolve().parents[3]


class Plugin:
    """kubectl with the plugin on its path and the namespace as its context's."""

    def __init__(self, kubeconfig: Path, namespace: str, directory: Path) -> None:
        program = directory / "kubectl-optimisedmodel"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m enginewright.plugin "$@"\n')
        program.chmod(0o755)
        completion = directory / "kubectl_complete-optimisedmodel"
        completion.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m enginewright.plugin.complete "$@"\n')
        completion.chmod(0o755)
        mine = yaml.safe_load(kubeconfig.read_text())
        for entry in mine["contexts"]:
            entry["context"]["namespace"] = namespace
        config = directory / "kubeconfig"
        config.write_text(yaml.safe_dump(mine))
        path = f"{directory}:{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "KUBECONFIG": str(config),
                            "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'builders'}"}

    async def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return await self.kubectl("optimisedmodel", *arguments)

    async def kubectl(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [str(binaries.node_program("kubectl")), *arguments]
        return await asyncio.to_thread(subprocess.run, command, env=self.environment, input=stdin, capture_output=True,
                                       text=True, timeout=240, check=False)
