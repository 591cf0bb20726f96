"""Bad specs, each with what is wrong, and odd ones that are right: what tests of the parser, tests on a real apiserver
and the page ``docs/bad-input.md`` share.

``wholes`` are good specs that together have every field of the CRD. ``fields`` makes one wrong, or odd but right, value
of every field from the CRD's schema; ``ends`` says which of the latter a rule refuses all the same. By hand:
``support.broken_specs`` breaks the rules between fields, ``odd`` keeps them by a hair.
"""

from support.corpus.case import Case, Raw
from support.corpus.fields import UNKNOWN, bad_ends, bad_fields, odd_fields
from support.corpus.odd import ODD
from support.corpus.wholes import WHOLES

__all__ = ["ODD", "UNKNOWN", "WHOLES", "Case", "Raw", "bad_ends", "bad_fields", "odd_fields"]
