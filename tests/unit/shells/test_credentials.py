"""Which of a kubeconfig's contexts is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from enginewright.clients.credentials import current_namespace, load_configuration
from enginewright.clients.errors import RefusedError
from enginewright.plugin.main import main


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    """Two clusters, at neither of which anybody answers."""
    contexts = [("near", {"cluster": "near", "user": "me", "namespace": "team"}),
                ("far", {"cluster": "far", "user": "me"})]
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": "near",
        "contexts": [{"name": name, "context": context} for name, context in contexts],
        "clusters": [{"name": "near", "cluster": {"server": "http://127.0.0.1:1"}},
                     {"name": "far", "cluster": {"server": "http://127.0.0.1:2"}}],
        "users": [{"name": "me", "user": {}}],
    }))
    return str(file)


@pytest.mark.parametrize(("context", "host", "namespace"), [
    (None, "http://127.0.0.1:1", "team"),
    ("near", "http://127.0.0.1:1", "team"),
    ("far", "http://127.0.0.1:2", "default"),
])
def test_a_context_is_the_current_one_or_the_named(kubeconfig: str, context: str | None, host: str,
                                                   namespace: str) -> None:
    assert asyncio.run(load_configuration(kubeconfig, context)).host == host
    assert current_namespace(kubeconfig, context) == namespace


def test_a_context_that_is_not_there_is_named(kubeconfig: str) -> None:
    assert current_namespace(kubeconfig, "gone") == "default"
    with pytest.raises(RefusedError, match="gone"):
        asyncio.run(load_configuration(kubeconfig, "gone"))


@pytest.mark.parametrize("verb", [["explain", "minilm"], ["top"]])
def test_the_plugin_asks_the_named_context(kubeconfig: str, verb: list[str],
                                           capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*verb, "--kubeconfig", kubeconfig, "--context", "gone"]) == 3
    assert "gone" in capsys.readouterr().err
