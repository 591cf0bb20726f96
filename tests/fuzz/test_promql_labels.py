"""Label matchers that users add to a query: read into data and written again, or refused."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.promql import (
    MATCHERS_PATTERN,
    RESERVED,
    RESERVED_PATTERN,
    Matcher,
    MatcherError,
    matchers_of,
    selector,
)

NAMES = st.sampled_from(["a", "cluster", "_x9", *RESERVED, "namespaces", "Pod"])
VALUES = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from('"\\{}\n\t,='), max_size=12)
MATCHERS = st.builds(Matcher, NAMES, st.sampled_from(["=", "!=", "=~", "!~"]), VALUES)
PIECES = st.sampled_from(["a", "namespace", "pod", "=", "!=", "=~", "!~", "~", '"', '"b"', "\\", "{", "}", ",", " ",
                          "\n", "'", "`", "#", " or ", "[5m]", "é", "\0", "\\x7d", "(", ")"])


def accepted(text: str) -> bool:
    """By what the CRD says: a pattern, and a rule."""
    return bool(re.search(MATCHERS_PATTERN.replace("$", r"\Z"), text)) and not re.search(RESERVED_PATTERN, text)


@given(st.lists(MATCHERS, max_size=4))
def test_what_is_written_is_read_as_it_was(matchers: list[Matcher]) -> None:
    text = selector(matchers)
    if {one.name for one in matchers} & set(RESERVED):
        assert not accepted(text)
        return
    assert list(matchers_of(text)) == matchers
    assert accepted(text)


@given(st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=30))
def test_any_text_is_read_or_refused_by_the_operator_as_by_the_apiserver(text: str) -> None:
    try:
        found = matchers_of(text)
    except MatcherError:
        assert not accepted(text)
        return
    assert accepted(text)
    assert matchers_of(selector(found)) == found


@given(VALUES)
def test_a_value_is_one_string_of_promql(value: str) -> None:
    written = str(Matcher("a", "=", value))
    assert re.fullmatch(r'a="(?:[^"\\\n]|\\["\\bfnrt]|\\u[0-9a-f]{4})*"', written)
    assert json.loads(written[2:]) == value
