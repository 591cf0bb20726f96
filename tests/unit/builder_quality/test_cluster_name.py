"""By which name a monitor asks for the Service of a candidate."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from enginewright_builder.quality import monitor as monitor_module
from enginewright_builder.quality.cluster_name import absolute_name

KUBELET = "search prod.svc.cluster.local svc.cluster.local cluster.local corp.example\nnameserver 10.96.0.10\n"


@pytest.mark.parametrize(("text", "name"), [
    (KUBELET, "m.prod.svc.cluster.local."),
    (f"{KUBELET}options ndots:5\n", "m.prod.svc.cluster.local."),
    ("search\tprod.svc.k8s.Example.org.\tcorp.example\n", "m.prod.svc.k8s.example.org."),
    ("search prod.svc.one\n", "m.prod.svc.one."),
    # The last line counts, and its first such entry: the kubelet's own come first.
    ("search prod.svc.old.local\nsearch corp.example prod.svc.new.local prod.svc.later.local\n",
     "m.prod.svc.new.local."),
    ("search prod.svc.old.local\nsearch corp.example\n", ""),
    ("search prod.svc.old.local\nsearch\n", ""),
    # Of another namespace, of none, with no domain, or with something that is none.
    ("search other.svc.cluster.local svc.cluster.local corp.example\n", ""),
    ("search xprod.svc.cluster.local prod.svcx.local prod.svc prod.svc.\n", ""),
    ("search prod.svc..local prod.svc.a_b prod.svc.-a\n", ""),
    ("# search prod.svc.cluster.local\nnameserver 10.96.0.10\n", ""),
    ("", ""),
])
def test_the_name_is_whole_or_there_is_none(text: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "resolv.conf"
    path.write_text(text)
    assert absolute_name("m", "prod", path) == name


def test_without_a_namespace_or_a_file_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "resolv.conf"
    assert absolute_name("m", "prod", path) == ""
    path.write_text("search .svc.cluster.local svc.cluster.local\n")
    assert absolute_name("m", "", path) == ""


class StoppedError(Exception):
    pass


@pytest.mark.parametrize(("search", "arguments", "asked", "warnings"), [
    (KUBELET, ["--mirror=m"], ["m.prod.svc.cluster.local."], 0),
    ("search corp.example\n", ["--mirror=m"], [], 1),
    ("search corp.example\n", [], [], 0),
], ids=["in a cluster", "no such domain", "not asked for"])
def test_a_monitor_asks_by_that_name_or_not_at_all(
    search: str, arguments: list[str], asked: list[str], warnings: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:
    hosts: list[str | None] = []
    given: list[str | None] = []

    def reference(folder: Path, about: object, cpus: int) -> SimpleNamespace:
        return SimpleNamespace(about=about, metric="cosine", batched=True)

    def mirror(host: str, *_: Any, **__: Any) -> str:
        hosts.append(host)
        return host

    def monitor(*parts: Any, **_: Any) -> None:
        given.append(parts[-1])
        raise StoppedError

    path = tmp_path / "resolv.conf"
    path.write_text(search)
    (tmp_path / "reference.json").write_text(json.dumps({"metric": "cosine", "tolerance": 0.1, "interface": {}}))
    monkeypatch.setenv("POD_NAMESPACE", "prod")
    monkeypatch.setattr(monitor_module, "RESOLV_CONF", path)
    for name, made in (("Reference", reference), ("Mirror", mirror), ("Monitor", monitor)):
        monkeypatch.setattr(monitor_module, name, made)
    with caplog.at_level(logging.WARNING), pytest.raises(StoppedError):
        monitor_module.main([str(tmp_path), "--model=m", "--traces=t", "--share=1", "--per-minute=1", "--window=1",
                             "--port=0", *arguments])
    assert hosts == asked
    assert given == [asked[0] if asked else None]
    said = [record.message for record in caplog.records if "no live request is sent" in record.message]
    assert len(said) == warnings
