"""A source that must be signed, from the spec to the condition: the operator, its Job, and the builder's own resolve
step."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

from enginewright.clients.kube import Object
from enginewright.clients.resources import DEPLOYMENT, JOB
from enginewright.core import labels
from enginewright.runtime import Operator
from enginewright_builder.contract import BuildRequest, Outcome
from enginewright_builder.pipeline import run_resolve
from enginewright_builder.progress import JsonLines, Tracker
from support.apiserver import Models, model
from support.fake_kubelet import FakeKubelet
from support.signing import new_key, sign

MINE = f"{labels.MODEL}=minilm"


class Volumes:
    """What the resolve Job's pod would see: the claim ``models``, an empty store, and the keys of a ConfigMap, as far
    as the pod mounts them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys: dict[str, str] = {}
        (folder / "models" / "minilm").mkdir(parents=True)
        (folder / "store").mkdir()

    def resolve(self, request: BuildRequest, pod: Object) -> Outcome:
        mounted = self.folder / pod["metadata"]["uid"]
        mounted.mkdir()
        (volume,) = (volume for volume in pod["spec"]["volumes"] if volume["name"] == "signature-key")
        assert volume["configMap"]["name"] == "keys"
        assert volume["configMap"]["optional"] is True
        (mount,) = (mount for mount in pod["spec"]["containers"][0]["volumeMounts"] if mount["name"] == "signature-key")
        for item in volume["configMap"]["items"]:
            if item["key"] in self.keys:
                (mounted / item["path"]).write_text(self.keys[item["key"]])
        assert request.signature
        key = mounted / Path(request.signature.key_path).relative_to(mount["mountPath"])
        here = replace(request, store_path=str(self.folder / "store"), mounts={"models": str(self.folder / "models")},
                       signature=replace(request.signature, key_path=str(key)))
        return run_resolve(here, self.folder, Tracker(JsonLines(io.StringIO())))


async def test_a_source_that_is_not_what_its_key_signed_is_refused_unopened(
    operator: Operator, models: Models, kubelet: FakeKubelet, tmp_path: Path
) -> None:
    """It is no model at all, which is said as soon as it may be opened."""
    volumes = Volumes(tmp_path)
    for name in ("ours", "theirs"):
        new_key(tmp_path / name)
        volumes.keys[f"{name}.pub"] = (tmp_path / f"{name}.pub").read_text()
    source = tmp_path / "models" / "minilm"
    (source / "weights.bin").write_bytes(b"weights")
    sign(source, source / "model.sig", tmp_path / "ours.key")
    kubelet.script.resolver = volumes.resolve

    def signed_by(key: str) -> dict[str, Any]:
        signature = {"configMapKeyRef": {"name": "keys", "key": key}}
        return {"source": {"uri": "pvc://models/minilm", "signature": signature}}

    await models.create(model(**signed_by("theirs.pub")))
    told = await models.wait("SourceResolved", "False", "SignatureInvalid")
    assert "spec.source.signature: the source is not what was signed" in told["message"]
    assert "find out who changed the source or which key signed it" in told["message"]
    assert (await models.condition("Ready"))["reason"] == "SignatureInvalid"
    assert (await models.condition("EngineBuilt"))["reason"] == "WaitingForSource"

    await models.patch({"spec": signed_by("none.pub")})
    told = await models.wait("SourceResolved", "False", "SignatureKeyMissing")
    assert "ConfigMap keys/none.pub is not there" in told["message"]

    await models.patch({"spec": signed_by("ours.pub")})
    await models.wait("SourceResolved", "False", "FormatUnknown")
    (source / "added.bin").write_bytes(b"more")
    await models.patch({"metadata": {"annotations": {labels.RETRY: "1"}}})
    told = await models.wait("SourceResolved", "False", "SignatureInvalid")
    assert "added.bin" in told["message"]
    assert kubelet.count("build") == 0
    assert await models.names(DEPLOYMENT, MINE) == []
    assert await models.names(JOB, f"{MINE},{labels.STEP}={labels.COMPONENT_BUILD}") == []
