"""``python -m enginewright_builder`` is ``enginewright-build``."""

import sys

from enginewright_builder.cli import main

sys.exit(main())
