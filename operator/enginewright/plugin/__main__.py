"""``python -m enginewright.plugin``."""

from __future__ import annotations

import sys

from enginewright.plugin.main import main

sys.exit(main())
