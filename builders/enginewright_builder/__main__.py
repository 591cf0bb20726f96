"""``python -m enginewright_builder`` is ``enginewright-build``. An installation without the packages that builds need
says which extra brings them: ``pip install enginewright`` is for the operator and the plugin."""

from __future__ import annotations

import re
import sys
from importlib import metadata

from enginewright_builder.contract import EXIT_USER

DISTRIBUTION = "enginewright"
EXTRA = "builder"


def main() -> int:
    try:
        from enginewright_builder.cli import main as run
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if not name or name == __package__:
            raise
        print(what_to_install(name), file=sys.stderr)
        return EXIT_USER
    return run()


def what_to_install(module: str) -> str:
    """``module`` is what could not be imported first."""
    absent = ", ".join(absent_packages()) or module
    return (f"enginewright-build: these packages are not installed: {absent}. The extra {EXTRA} brings them, and the "
            f"extra triton a tritonserver: pip install '{DISTRIBUTION}[{EXTRA},triton]'")


def absent_packages() -> list[str]:
    """Of the extra, by the metadata of this installation; none where it has no metadata, as in a clone."""
    try:
        declared = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []
    of_extra = [line for line in declared if re.search(rf"extra == ['\"]{EXTRA}['\"]", line)]
    names = (re.match(r"[A-Za-z0-9._-]+", line) for line in of_extra)
    return sorted(match[0] for match in names if match and not _is_installed(match[0]))


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
