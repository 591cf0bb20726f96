"""What a user may add to a query of ours: label matchers, read into data and written again.

A query is for the pods of one namespace. As text, a matcher could end the braces and begin another selector, so that
one namespace's replicas would follow another's queue.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

# Both in CEL (RE2) as well. Escapes are those that PromQL, JSON and CEL read alike; a value has no line end.
_NAME: Final = r"[a-zA-Z_][a-zA-Z0-9_]*"
_VALUE: Final = r'"(?:[^"\\\x00-\x1f\x7f]|\\["\\nt])*"'
_MATCHER: Final = rf"[ \t\n]*{_NAME}[ \t\n]*(?:=~|!~|!=|=)[ \t\n]*{_VALUE}[ \t\n]*"
MATCHERS_PATTERN: Final = rf"^({_MATCHER}(,{_MATCHER})*,?)?[ \t\n]*$"
# The operator's own.
RESERVED: Final = ("namespace", "pod", "__name__")
RESERVED_PATTERN: Final = rf"^({_MATCHER},)*[ \t\n]*({'|'.join(RESERVED)})[ \t\n]*[=!]"

_ONE: Final = re.compile(rf"[ \t\n]*({_NAME})[ \t\n]*(=~|!~|!=|=)[ \t\n]*({_VALUE})[ \t\n]*(?:,|\Z)")


class MatcherError(ValueError):
    """The text holds something else than label matchers, or one that is the operator's."""


@dataclass(frozen=True)
class Matcher:
    """``operator`` is ``=``, ``!=``, ``=~`` or ``!~``."""

    name: str
    operator: str
    value: str

    def __str__(self) -> str:
        return f"{self.name}{self.operator}{quoted(self.value)}"


def matchers_of(text: str) -> tuple[Matcher, ...]:
    """Raises :class:`MatcherError`."""
    found, at = [], 0
    while text[at:].strip():
        one = _ONE.match(text, at)
        if one is None:
            raise MatcherError('holds more than label matchers such as cluster="eu-1",tier=~"a|b"')
        if one[1] in RESERVED:
            raise MatcherError(f"names the label {one[1]}, which the operator sets")
        found.append(Matcher(one[1], one[2], json.loads(one[3])))
        at = one.end()
    return tuple(found)


def selector(matchers: Iterable[Matcher]) -> str:
    """Between the braces of a query."""
    return ",".join(map(str, matchers))


def quoted(text: str) -> str:
    """A PromQL string literal. JSON's escapes are among its own, but for pairs of surrogates."""
    return json.dumps(text, ensure_ascii=False)
