"""How the container of a language model starts its server."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from enginewright.core.manifests import deployment
from support.children import children_of
from support.published_language_model import built_language_model


def container(**published: Any) -> dict[str, Any]:
    children = children_of("chat", {"source": {"uri": "pvc://models/tiny"}, "placement": {"accelerator": "cpu"}})
    record = replace(children.record, outcome=built_language_model(children.fingerprint, **published))
    made = deployment(children.owner, children.spec, record, children.placement, children.config)
    found: dict[str, Any] = made["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.mark.parametrize(("given", "path"), [({}, "/smoke-test"),
                                             ({"PYTHONPATH": "/opt/vllm"}, "/smoke-test:/opt/vllm")])
def test_it_imports_what_the_pod_brings_and_what_the_image_names(tmp_path: Path, given: dict[str, str],
                                                                 path: str) -> None:
    program = tmp_path / "vllm"
    program.write_text('#!/bin/sh\necho "$PYTHONPATH"\necho $$\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    asked = container()
    with subprocess.Popen([*asked["command"], *asked["args"], "two words"], stdout=subprocess.PIPE, text=True,
                          env={"PATH": f"{tmp_path}:/usr/bin:/bin", **given}) as started:
        said = started.communicate()[0].splitlines()
    assert said == [path, str(started.pid), "serve", *asked["args"], "two words"], "signals reach the server itself"
    assert "--middleware=renewing.Renewing" in asked["args"]


def test_it_downloads_nothing_that_clients_name() -> None:
    assert "--allowed-media-domains=none.invalid" in container()["args"]


def test_a_draft_is_mounted_where_the_servers_words_say() -> None:
    word = '--speculative-config={"method":"draft_model","model":"{draft}","num_speculative_tokens":2}'
    asked = container(words=("--dtype=float32", word), draft="small")
    model, draft = (one for one in asked["volumeMounts"] if one["name"] == "engine")
    assert draft == {"name": "engine", "mountPath": "/models/.draft", "readOnly": True,
                     "subPath": model["subPath"].replace("/model", "/draft")}
    (given,) = (json.loads(one.partition("=")[2]) for one in asked["args"] if one.startswith("--speculative-config="))
    assert given["model"] == draft["mountPath"]
    assert [one["mountPath"] for one in container()["volumeMounts"] if one["name"] == "engine"] == [model["mountPath"]]
