"""What this machine knows of its package index, as files for one build."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from images import index

CERTIFICATE_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE")
# Where Debian keeps all authorities that this machine trusts, an organisation's own with them.
SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


@contextmanager
def index_secrets(scratch: Path) -> Iterator[dict[str, Path]]:
    """Secrets of the Containerfile by name. The files are private, below ``scratch``, and gone afterwards."""
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        exports = Path(directory) / "index-env"
        exports.write_text(index.shell_exports(index.settings(os.environ, _pip_config(), _uv_config())))
        found = {"ca-bundle": certificates(), "maven-settings": maven_settings()}
        yield {"index-env": exports} | {name: path for name, path in found.items() if path}


def certificates() -> Path | None:
    """The bundle that this machine's tools are set to use, else the system's, else none."""
    named = [Path(os.environ[name]) for name in CERTIFICATE_VARIABLES if os.environ.get(name)]
    return next((path for path in (*named, SYSTEM_CERTIFICATES) if path.is_file()), None)


def maven_settings() -> Path | None:
    """The user's, which name a mirror where this machine has one."""
    path = Path.home() / ".m2" / "settings.xml"
    return path if path.is_file() else None


def _pip_config() -> str:
    command = ("pip",) if shutil.which("pip") else (sys.executable, "-m", "pip")
    return subprocess.run((*command, "config", "list"), capture_output=True, text=True, check=False).stdout


def _uv_config() -> str:
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    files = (home / "uv" / "uv.toml", Path("/etc/uv/uv.toml"))
    return next((path.read_text() for path in files if path.is_file()), "")
