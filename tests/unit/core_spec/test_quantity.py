from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.quantity import parse_quantity


@pytest.mark.parametrize(("text", "number"), [
    (0, "0"), (2, "2"), ("500m", "0.5"), ("2Gi", "2147483648"), ("2G", "2000000000"), ("1.5Ki", "1536"), (".5k", "500"),
    ("3.", "3"), ("1e3", "1000"), ("1E-2", "0.01"), ("1E", "1000000000000000000"), ("1Ei", "1152921504606846976"),
])
def test_quantities(text: str | int, number: str) -> None:
    assert parse_quantity(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "Gi", "2 GB", "2GB", "-1", "1mi", "1KI", "1Mm", "e3", ".", "1e9999", "٣"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)


@given(st.text(max_size=8))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    try:
        assert parse_quantity(text) >= 0
    except ValueError as error:
        assert "quantity" in str(error)  # noqa: PT017  (both ways are fine)
