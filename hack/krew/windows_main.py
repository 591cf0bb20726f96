"""The plugin from its archive on Windows: the libraries beside the program, and a Python that they were built for."""

import sys
from pathlib import Path

if sys.version_info[:2] != (3, 11):
    sys.exit(f"kubectl optimisedmodel needs Python 3.11 as python on the path; found {sys.version.split()[0]}")
# krew starts it through a link.
sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent / "lib"))

from enginewright.plugin.main import main

sys.exit(main())
