"""How this machine reaches its package index, for a build that does not see this machine's files and environment.

pip and uv have settings of the same meaning under different names; what is set for one counts for both.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping
from typing import Any

# Settings that name an index or the way to it. The others (caches, find-links) name places of this machine.
_SHARED = {
    "index-url": ("PIP_INDEX_URL", "UV_DEFAULT_INDEX"),
    "extra-index-url": ("PIP_EXTRA_INDEX_URL", "UV_INDEX"),
    "trusted-host": ("PIP_TRUSTED_HOST", "UV_INSECURE_HOST"),
    "timeout": ("PIP_DEFAULT_TIMEOUT", "UV_HTTP_TIMEOUT"),
}
_PASSED_ON = ("UV_INDEX_STRATEGY", "UV_KEYRING_PROVIDER")
_OLDER_NAMES = {"UV_INDEX_URL": "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL": "UV_INDEX"}


def settings(environment: Mapping[str, str], pip_config: str, uv_config: str) -> dict[str, str]:
    """Variables for pip and uv inside a build.

    Args:
        environment: of this process; it wins over the files.
        pip_config: what ``pip config list`` prints.
        uv_config: the text of ``uv.toml``.
    """
    found: dict[str, str] = {}
    for setting, value in (_from_pip(pip_config) | _from_uv(uv_config)).items():
        found |= dict.fromkeys(_SHARED[setting], value)
    known = {_OLDER_NAMES.get(name, name): value for name, value in environment.items()}
    for names in _SHARED.values():
        given = next((known[name] for name in names if known.get(name)), "")
        if given:
            found |= {name: known.get(name) or given for name in names}
    for name, value in known.items():
        credentials = name.startswith("UV_INDEX_") and name.endswith(("_USERNAME", "_PASSWORD"))
        if value and (credentials or name in _PASSED_ON):
            found[name] = value
    return found


def shell_exports(variables: Mapping[str, str]) -> str:
    """Lines for a shell to read, one ``export`` each."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(variables.items()))


def _from_pip(text: str) -> dict[str, str]:
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition("=")
        setting = name.rpartition(".")[2]
        if setting in _SHARED:
            # `pip config list` prints values as Python literals; a list setting has one value a line.
            found[setting] = " ".join(value.strip("'\"").replace("\\n", " ").split())
    return found


def _from_uv(text: str) -> dict[str, str]:
    config: dict[str, Any] = tomllib.loads(text)
    found = {}
    if isinstance(config.get("index-url"), str):
        found["index-url"] = config["index-url"]
    if config.get("extra-index-url"):
        found["extra-index-url"] = " ".join(config["extra-index-url"])
    indexes = config.get("index", [])
    for setting, default in (("index-url", True), ("extra-index-url", False)):
        if addresses := [entry["url"] for entry in indexes if bool(entry.get("default")) is default]:
            found[setting] = " ".join(addresses)
    return found
