"""Finding 2: whoever writes the engine store gets code into a replica, or an engine of their own taken for a hit.

Every attack goes through the functions that pods run: ``verify`` with the arguments of the Deployment, and the build
Job's ``run_build``.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import py_compile
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from enginewright.core.request import build_request
from enginewright_builder import verify
from enginewright_builder.contract import (
    MANIFEST_FILE,
    BuildRequest,
    EngineSummary,
    FileEntry,
    Manifest,
    Outcome,
    ServingChoice,
)
from enginewright_builder.engine_store import folder as store
from enginewright_builder.engine_store import store as engine_store
from enginewright_builder.engine_store.manifest import EXIT_DAMAGED, manifest_digest, sha256_file
from enginewright_builder.pipeline import run_build, run_resolve
from enginewright_builder.progress import JsonLines, Tracker
from support.children import RESOLVED, Children, children_of, runtime_of
from support.models import mlp

CPU: dict[str, Any] = {"source": {"uri": "pvc://models/net"}, "placement": {"accelerator": "cpu"},
                       "store": {"uri": "pvc://engines/team"}}
MODEL = "model_repository/model/1/model.py"
HONEST = b"WHO = 'the build'\n"
EVIL = "WHO = 'the attacker'\n"


def engine() -> Children:
    return children_of("net", CPU)


def published(shelf: Path, children: Children) -> str:
    """The digest of the manifest."""
    staging = shelf.parent / "staging"
    for name, data in ((MODEL, HONEST), ("model_repository/model/config.pbtxt", b"backend: 'python'")):
        (staging / name).parent.mkdir(parents=True, exist_ok=True)
        (staging / name).write_bytes(data)
    shelf.mkdir(parents=True)
    return manifest_digest(store.publish(staging, shelf, children.fingerprint, outcome=children.outcome))


def check(folder: Path, fingerprint: str, digest: str) -> int:
    return verify.main([str(folder), "--fingerprint", fingerprint, "--manifest-digest", digest])


def imported(folder: Path) -> str:
    """What the server's Python gets for ``model.py``."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import model; print(model.WHO)"
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True,
                          timeout=240, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    return done.stdout.strip()


def plant_bytecode(source: Path, scratch: Path) -> Path:
    """Bytecode that Python takes for ``source`` without a look at it."""
    evil = scratch / "evil.py"
    evil.write_text(EVIL)
    cache = Path(importlib.util.cache_from_source(str(source)))
    cache.parent.mkdir(exist_ok=True)
    py_compile.compile(str(evil), str(cache), doraise=True,
                       invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    return cache


class TestReplica:
    def test_bytecode_beside_the_model_is_refused(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        children, shelf = engine(), tmp_path / "store"
        digest = published(shelf, children)
        folder = shelf / children.fingerprint
        assert imported((folder / MODEL).parent) == "the build"
        assert check(folder, children.fingerprint, digest) == 0
        cache = plant_bytecode(folder / MODEL, tmp_path)
        assert imported((folder / MODEL).parent) == "the attacker", "the attack works where nobody looks"
        assert check(folder, children.fingerprint, digest) == EXIT_DAMAGED
        assert f"{cache.name} is not in the manifest" in capsys.readouterr().err

    @pytest.mark.parametrize("name", ["model.pyc", "__pycache__/sitecustomize.pyc", "__pycache__/deeper/x.so"])
    def test_nor_is_any_other_file_that_the_manifest_does_not_name(self, name: str, tmp_path: Path) -> None:
        children, shelf = engine(), tmp_path / "store"
        digest = published(shelf, children)
        planted = (shelf / children.fingerprint / MODEL).parent / name
        planted.parent.mkdir(parents=True, exist_ok=True)
        planted.write_bytes(b"evil")
        assert check(shelf / children.fingerprint, children.fingerprint, digest) == EXIT_DAMAGED

    def test_a_link_to_a_folder_with_another_version_is_refused(self, tmp_path: Path) -> None:
        """Triton would load version 2."""
        children, shelf = engine(), tmp_path / "store"
        digest = published(shelf, children)
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "model.py").write_text(EVIL)
        (shelf / children.fingerprint / "model_repository/model/2").symlink_to(tmp_path / "elsewhere")
        assert check(shelf / children.fingerprint, children.fingerprint, digest) == EXIT_DAMAGED

    @pytest.mark.parametrize("name", ["/etc/hostname", "../outside"])
    def test_a_manifest_names_nothing_outside_of_its_engine(self, name: str, tmp_path: Path) -> None:
        children, folder = engine(), tmp_path / "store" / "engine"
        folder.mkdir(parents=True)
        (tmp_path / "store" / "outside").write_bytes(b"a file")
        found = (folder / name).read_bytes()
        entry = FileEntry(sha256=hashlib.sha256(found).hexdigest(), bytes=len(found))
        manifest = Manifest(fingerprint=children.fingerprint, created="", files={name: entry}, outcome=children.outcome)
        (folder / MANIFEST_FILE).write_text(manifest.to_json())
        assert check(folder, children.fingerprint, manifest_digest(manifest)) == EXIT_DAMAGED

    def test_what_was_checked_is_what_is_served_whatever_happens_to_the_store_afterwards(self, tmp_path: Path) -> None:
        """The pod of the real Deployment, its volumes as folders."""
        children = engine()
        digest = published(tmp_path / "claim" / "team", children)
        pod = replace_digest(children, digest)["spec"]["template"]["spec"]
        volumes = {volume["name"]: self.folder(volume, tmp_path) for volume in pod["volumes"]}
        (first,) = (one for one in pod["initContainers"] if one["name"] == "verify")
        arguments = [mapped(word, first, volumes) for word in first["args"]]
        assert verify.main(arguments) == 0
        (tmp_path / "claim" / "team" / children.fingerprint / MODEL).write_text(EVIL)
        (server,) = (one for one in pod["containers"] if one["name"] == "server")
        (mount,) = (one for one in server["volumeMounts"] if one["mountPath"].startswith("/models/"))
        served = volumes[mount["name"]] / mount["subPath"]
        assert (served / "1" / "model.py").read_bytes() == HONEST
        assert mount["readOnly"] is True
        assert verify.main(arguments) == 0, "a node that restarts runs init containers once more"

    @staticmethod
    def folder(volume: dict[str, Any], root: Path) -> Path:
        claim = volume.get("persistentVolumeClaim")
        path = root / ("claim" if claim else f"volume-{volume['name']}")
        path.mkdir(exist_ok=True)
        return path


def replace_digest(children: Children, digest: str) -> dict[str, Any]:
    from enginewright.core.manifests import deployment

    record = replace(children.record, outcome=replace(children.record.outcome, manifest_digest=digest))
    return deployment(children.owner, children.spec, record, children.placement, children.config)


def mapped(word: str, container: dict[str, Any], volumes: dict[str, Path]) -> str:
    for mount in container["volumeMounts"]:
        if word.startswith(f"{mount['mountPath']}/") or word == mount["mountPath"]:
            return str(volumes[mount["name"]]) + word.removeprefix(mount["mountPath"])
    return word


class TestBuildJob:
    """Who writes the store computes the fingerprint of a request before its build begins, and puts an engine there."""

    @pytest.fixture
    def request_(self, tmp_path: Path) -> BuildRequest:
        """What a build Job is given, with its folders in place of mounts."""
        children = engine()
        (tmp_path / "net.onnx").write_bytes(mlp().SerializeToString())
        (tmp_path / "store").mkdir()
        made = build_request("net", children.spec, RESOLVED, children.placement, children.config,
                             runtime_of(children.spec, children.config))
        source = replace(made.source, uri=str(tmp_path / "net.onnx"), digest="", format="auto")
        given: dict[str, Any] = {
            "store_path": str(tmp_path / "store"), "mounts": {}, "source": source,
            "accuracy": replace(made.accuracy, evaluation=None), "engine": replace(made.engine, calibration=None)}
        if getattr(made, "signing_keys", ""):
            given["signing_keys"] = str(tmp_path / "keys")
            (tmp_path / "keys").mkdir()
            (tmp_path / "keys" / "key").write_text("0123456789abcdef" * 4)
        return replace(made, **given)

    @pytest.fixture(autouse=True)
    def built(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Stands for the heavy part of a build, which publishes."""
        done: list[str] = []

        def build(resolved: Any, scratch: Path, steps: object, budget: object) -> Outcome:
            staging = scratch / "staging" / "model_repository"
            staging.mkdir(parents=True)
            (staging / "model.py").write_bytes(HONEST)
            request = resolved.request
            done.append(request.fingerprint())
            outcome = outcome_of(request.fingerprint())
            shelf = engine_store.of(request, lambda note: None)
            manifest = shelf.publish(scratch / "staging", request.fingerprint(), outcome=outcome)
            return replace(manifest.outcome, manifest_digest=manifest_digest(manifest))

        monkeypatch.setitem(sys.modules, "enginewright_builder.building", SimpleNamespace(build=build))
        return done

    def run(self, request: BuildRequest, scratch: Path) -> Outcome:
        scratch.mkdir()
        outcome = run_build(request, scratch, Tracker(JsonLines(io.StringIO())))
        assert outcome.ok, outcome.error
        return outcome

    def fingerprint(self, request: BuildRequest, scratch: Path) -> str:
        scratch.mkdir()
        found = run_resolve(replace(request, store_path=""), scratch, Tracker(JsonLines(io.StringIO())))
        assert found.ok, found.error
        return found.fingerprint

    def test_a_forged_engine_at_the_right_fingerprint_is_no_hit(self, request_: BuildRequest, tmp_path: Path,
                                                                built: list[str]) -> None:
        fingerprint = self.fingerprint(request_, tmp_path / "r")
        forge(tmp_path / "store" / fingerprint, fingerprint)
        outcome = self.run(request_, tmp_path / "s")
        assert built == [fingerprint]
        assert not outcome.cache_hit
        assert (tmp_path / "store" / fingerprint / "model_repository/model.py").read_bytes() == HONEST

    def test_nor_is_one_with_a_signature_taken_from_elsewhere(self, request_: BuildRequest, tmp_path: Path,
                                                              built: list[str]) -> None:
        """Its own engine's manifest, altered; with a key of the attacker's; and bytes that no builder writes."""
        first = self.run(request_, tmp_path / "s")
        for index, alter in enumerate((altered, foreign, rewritten)):
            folder = tmp_path / "store" / first.fingerprint
            alter(folder)
            outcome = self.run(request_, tmp_path / f"s{index}")
            assert not outcome.cache_hit, alter.__name__
            assert (folder / "model_repository/model.py").read_bytes() == HONEST
        assert len(built) == 4

    def test_what_a_build_job_published_is_a_hit(self, request_: BuildRequest, tmp_path: Path,
                                                 built: list[str]) -> None:
        first = self.run(request_, tmp_path / "s")
        second = self.run(request_, tmp_path / "t")
        assert second.cache_hit
        assert second.manifest_digest == first.manifest_digest
        folder = tmp_path / "store" / first.fingerprint
        assert second.manifest_digest == f"sha256:{sha256_file(folder / MANIFEST_FILE)}"
        assert len(built) == 1


def outcome_of(fingerprint: str) -> Outcome:
    summary = EngineSummary(
        backend="onnxruntime", precision="fp32", triton_backend="python", size_bytes=1, speedup=1.0, p50_ms=1.0,
        p95_ms=1.0, p99_ms=1.0, throughput=1.0, accuracy=1.0, accuracy_low=1.0, device="cpu", runtime_version="1",
        load_seconds=1.0)
    return Outcome(kind="build", ok=True, fingerprint=fingerprint, engine=summary,
                   serving=ServingChoice(max_batch_size=1))


def forge(folder: Path, fingerprint: str, **more: Any) -> None:
    """An engine that agrees with itself in all its digests."""
    (folder / "model_repository").mkdir(parents=True, exist_ok=True)
    (folder / "model_repository" / "model.py").write_text(EVIL)
    entry = FileEntry(sha256=hashlib.sha256(EVIL.encode()).hexdigest(), bytes=len(EVIL))
    manifest = Manifest(fingerprint=fingerprint, created="2026-11-24T00:00:00Z", outcome=outcome_of(fingerprint),
                        files={"model_repository/model.py": entry}, **more)
    (folder / MANIFEST_FILE).write_text(manifest.to_json())


def altered(folder: Path) -> None:
    """The signature stays, the files are others."""
    document = json.loads((folder / MANIFEST_FILE).read_text())
    (folder / "model_repository" / "model.py").write_text(EVIL)
    document["files"] = {"model_repository/model.py": {
        "sha256": hashlib.sha256(EVIL.encode()).hexdigest(), "bytes": len(EVIL)}}
    (folder / MANIFEST_FILE).write_text(json.dumps(document, indent=2))


def foreign(folder: Path) -> None:
    """Signed, with a key that the attacker made."""
    from enginewright_builder.engine_store.signing import Keys

    forge(folder, folder.name)
    manifest = Manifest.from_json((folder / MANIFEST_FILE).read_text())
    (folder / MANIFEST_FILE).write_text(Keys(current=b"x" * 64).signed(manifest).to_json())


def rewritten(folder: Path) -> None:
    """The same manifest in other bytes: its digest would be one that no replica finds."""
    document = json.loads((folder / MANIFEST_FILE).read_text())
    (folder / MANIFEST_FILE).write_text(json.dumps(document))
