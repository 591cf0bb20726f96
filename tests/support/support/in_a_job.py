"""The builder's command as a Job's container runs it, with the variables that a kubelet would give it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from enginewright_builder.contract import BuildRequest, Outcome, SourceRequest
from support.children import children_of

ROOT = Path(__file__).resolve().parents[3]
COMMAND = ROOT / "builders" / "images" / "enginewright-build"


def environment_of(container: Mapping[str, Any], secrets: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """A kubelet reads ``env`` after ``envFrom``."""
    entries = {one.get("prefix", "") + name: value for one in container.get("envFrom", [])
               for name, value in secrets[one["secretRef"]["name"]].items()}
    return {**entries, **{one["name"]: one["value"] for one in container.get("env", [])}}


def resolve_container(uri: str, secret: str) -> dict[str, Any]:
    """Of the resolve Job of a model at ``uri``, which may be read with that Secret."""
    spec = {"source": {"uri": uri, "secretRef": {"name": secret}}, "placement": {"accelerator": "cpu"}}
    container: dict[str, Any] = children_of("m", spec).all()["resolve_job"]["spec"]["template"]["spec"]["containers"][0]
    return container


def resolved(uri: str, container: Mapping[str, Any], secrets: Mapping[str, Mapping[str, str]],
             folder: Path) -> tuple[Outcome, str]:
    """What the resolve step says of the source at ``uri``, and what its process wrote to stderr."""
    folder.mkdir(exist_ok=True)
    (folder / "store").mkdir()
    request = BuildRequest(model_name="m", source=SourceRequest(uri=uri), store_path=str(folder / "store"))
    (folder / "request.json").write_text(request.to_json())
    # As the builder's image has it.
    image = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "builders"), "HF_HUB_OFFLINE": "1",
             "HOME": str(folder), "ENGINEWRIGHT_TERMINATION_LOG": str(folder / "termination")}
    ended = subprocess.run([sys.executable, COMMAND, "resolve", "--request", folder / "request.json"], text=True,
                           env={**image, **environment_of(container, secrets)}, capture_output=True, check=False)
    left = folder / "termination"
    assert left.exists(), ended.stderr
    return Outcome.from_json(left.read_text()), ended.stderr
