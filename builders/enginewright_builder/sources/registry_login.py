"""The registry's credentials, as the environment has them.

A Secret of type ``kubernetes.io/dockerconfigjson``, which image pulls use, has one entry, ``.dockerconfigjson``, and
names of variables may have dots. ``REGISTRY_USERNAME`` and ``REGISTRY_PASSWORD`` say the same in plain words, for every
registry that is read. By hand it is what ``docker login`` left behind.
"""

from __future__ import annotations

import base64
import fnmatch
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from enginewright_builder.contract import PULL_ENTRY
from enginewright_builder.sources.remote import bad_credentials

_PAIR = ("REGISTRY_USERNAME", "REGISTRY_PASSWORD")
_MADE_BY = "make the Secret with kubectl create secret docker-registry"
# One registry by the names that it has had.
_DOCKER_HUB = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io"})


@dataclass(frozen=True)
class Login:
    username: str
    password: str = field(repr=False)

    @property
    def basic(self) -> str:
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


def login_for(registry: str, repository: str) -> Login | None:
    """None where no user is named. Raises :class:`UserError` ``CredentialsInvalid``, without any value."""
    given = [os.environ.get(name, "") for name in _PAIR]
    if bool(given[0]) != bool(given[1]):
        raise bad_credentials(f"{' and '.join(_PAIR)} are a pair, and one is missing", "give both")
    entry = None
    if os.environ.get(PULL_ENTRY):
        entry = _entry(os.environ[PULL_ENTRY], PULL_ENTRY, registry, repository)
    elif not given[0]:
        file = Path(os.environ.get("DOCKER_CONFIG") or "~/.docker").expanduser() / "config.json"
        if file.is_file():
            entry = _entry(file.read_text(encoding="utf-8"), str(file), registry, repository)
    if entry is not None:
        return entry
    return Login(given[0], given[1]) if given[0] else None


def _entry(text: str, name: str, registry: str, repository: str) -> Login | None:
    """The entry that fits the repository best."""
    try:
        entries = json.loads(text).get("auths", {}).items()
    except (ValueError, AttributeError):
        raise bad_credentials(f"{name} is no Docker configuration in JSON", _MADE_BY) from None
    fitting = [(_fit(key, registry, repository), key, entry) for key, entry in entries]
    _, key, entry = max(((fit, key, entry) for fit, key, entry in fitting if fit), default=(0, "", None),
                        key=lambda found: found[0])
    return None if entry is None else _login(entry, f"{name}, {key}")


def _fit(key: str, registry: str, repository: str) -> int:
    """How much of the repository's name the entry's says, as a kubelet compares them; 0 is another one's. A * stands
    for part of a host's name."""
    place = re.sub(r"^https?://", "", key.strip(), flags=re.IGNORECASE).rstrip("/")
    host, _, path = re.sub(r"/v[12]$", "", place).partition("/")
    if _canonical(host) != _canonical(registry):
        parts, wanted = host.lower().split("."), registry.lower().split(".")
        if len(parts) != len(wanted) or not all(map(fnmatch.fnmatchcase, wanted, parts)):
            return 0
    if path and repository != path and not repository.startswith(f"{path}/"):
        return 0
    return 1 + len(path) * 1000 + len(host.replace("*", ""))


def _canonical(host: str) -> str:
    host = host.lower()
    return "docker.io" if host in _DOCKER_HUB else host.removesuffix(":443")


def _login(entry: Any, where: str) -> Login | None:
    """None for what names no user: a helper program has the password, which is not asked."""
    if not isinstance(entry, dict):
        raise bad_credentials(f"{where} is not an entry of a Docker configuration", _MADE_BY)
    username, password = entry.get("username"), entry.get("password")
    if entry.get("auth"):
        try:
            username, _, password = base64.b64decode(entry["auth"], validate=True).decode().partition(":")
        except (ValueError, TypeError):
            raise bad_credentials(f"{where} has an auth that is no user and password in base64", _MADE_BY) from None
    if entry.get("identitytoken") or entry.get("registrytoken"):
        raise bad_credentials(f"{where} has the token of a login, and no password",
                              f"{_MADE_BY}, with a user and password")
    if not username and not password:
        return None
    if not isinstance(username, str) or not isinstance(password, str):
        raise bad_credentials(f"{where} has no user and password", _MADE_BY)
    return Login(username, password)
