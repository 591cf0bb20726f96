"""Who is named to which registry."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from enginewright_builder.contract import PULL_ENTRY
from enginewright_builder.errors import UserError
from enginewright_builder.sources.registry_login import Login, login_for


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (PULL_ENTRY, "REGISTRY_USERNAME", "REGISTRY_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))


def config(**users: str) -> str:
    return json.dumps({"auths": {key: {"username": user, "password": "p"} for key, user in users.items()}})


@pytest.mark.parametrize(("keys", "registry", "repository", "found"), [
    (["registry.example"], "registry.example", "a/b", "registry.example"),
    (["https://Registry.example/v2/"], "registry.example", "a/b", "https://Registry.example/v2/"),
    (["registry.example:443"], "registry.example", "a/b", "registry.example:443"),
    (["registry.example:5000"], "registry.example", "a/b", ""),
    (["registry.example"], "registry.example:5000", "a/b", ""),
    (["https://index.docker.io/v1/"], "registry-1.docker.io", "library/a", "https://index.docker.io/v1/"),
    (["*.example"], "registry.example", "a/b", "*.example"), (["*.example"], "a.registry.example", "a/b", ""),
    (["*.registry"], "a.registry.example", "a", ""),
    (["registry.example/a", "registry.example", "registry.example/a/b"], "registry.example", "a/b",
     "registry.example/a/b"),
    (["registry.example/a", "registry.example"], "registry.example", "ab", "registry.example"),
    (["*.example", "registry.example"], "registry.example", "a", "registry.example"),
    (["other.example"], "registry.example", "a", ""), ([], "registry.example", "a", ""),
])
def test_the_entry_that_fits_best_is_taken(keys: list[str], registry: str, repository: str, found: str,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PULL_ENTRY, config(**{key: key for key in keys}))
    login = login_for(registry, repository)
    assert (login.username if login else "") == found


def test_the_pair_is_for_registries_that_have_no_entry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(config(**{"registry.example": "by-hand"}))
    assert login_for("registry.example", "a") == Login("by-hand", "p")
    monkeypatch.setenv("REGISTRY_USERNAME", "u")
    monkeypatch.setenv("REGISTRY_PASSWORD", "p")
    assert login_for("registry.example", "a") == Login("u", "p"), "and what is said of it is not mixed with the file"
    monkeypatch.setenv(PULL_ENTRY, config(**{"registry.example": "entry"}))
    assert login_for("registry.example", "a") == Login("entry", "p")
    assert login_for("other.example", "a") == Login("u", "p")


@pytest.mark.parametrize(("entry", "login"), [
    ({"auth": base64.b64encode(b"u:p:q").decode()}, Login("u", "p:q")), ({}, None),
    ({"username": "u", "password": "p", "email": "e"}, Login("u", "p")),
])
def test_what_an_entry_says(entry: dict[str, Any], login: Login | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PULL_ENTRY, json.dumps({"auths": {"registry.example": entry}, "credsStore": "desktop"}))
    assert login_for("registry.example", "a") == login


@pytest.mark.parametrize(("text", "said"), [
    ("hunter2", "is no Docker configuration in JSON"), ('["hunter2"]', "is no Docker configuration in JSON"),
    ('{"auths": "hunter2"}', "is no Docker configuration in JSON"),
    ('{"auths": {"registry.example": "hunter2"}}', "registry.example is not an entry of a Docker configuration"),
    ('{"auths": {"registry.example": {"auth": "hunter2:"}}}', "no user and password in base64"),
    ('{"auths": {"registry.example": {"auth": 1}}}', "no user and password in base64"),
    ('{"auths": {"registry.example": {"username": "hunter2", "password": 1}}}', "has no user and password"),
    ('{"auths": {"registry.example": {"auth": "MDA6", "identitytoken": "hunter2"}}}', "and no password"),
])
def test_what_makes_no_sense_is_told_without_its_values(text: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PULL_ENTRY, text)
    with pytest.raises(UserError) as caught:
        login_for("registry.example", "a")
    assert (caught.value.reason, caught.value.field) == ("CredentialsInvalid", "spec.source.secretRef")
    assert said in caught.value.message
    assert "hunter2" not in f"{caught.value.message}{caught.value.remedy}{caught.value.value}"
    assert "kubectl create secret docker-registry" in caught.value.remedy


@pytest.mark.parametrize("name", ["REGISTRY_USERNAME", "REGISTRY_PASSWORD"])
def test_half_a_pair_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "hunter2")
    with pytest.raises(UserError) as caught:
        login_for("registry.example", "a")
    assert (caught.value.reason, "are a pair" in caught.value.message) == ("CredentialsInvalid", True)
    assert "hunter2" not in caught.value.message


def test_a_password_is_not_shown() -> None:
    assert "hunter2" not in repr(Login("u", "hunter2"))
