"""Programs that come from the distribution's packages."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from cluster.steps import ClusterError

# An ordinary user's PATH leaves these out.
SEARCH_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/bin", "/bin"))


def system_program(name: str) -> Path:
    """Where the distribution's program lies.

    Raises:
        ClusterError: it is not installed; the message names the remedy.
    """
    found = shutil.which(name, path=SEARCH_PATH)
    if found is None:
        raise ClusterError(f"{name} is not installed: run hack/bin-deps.sh (as root, Debian 12)")
    return Path(found)
