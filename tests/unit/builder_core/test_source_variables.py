"""Which entries of a source's Secret the builder reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright_builder.contract import SOURCE_ENTRIES, SOURCE_VARIABLES
from enginewright_builder.source_variables import take_source_variables

READ = ("HF_TOKEN", "HF_ENDPOINT", "AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL_S3", "GOOGLE_SERVICE_ACCOUNT_KEY",
        "REGISTRY_USERNAME", "REGISTRY_PLAIN_HTTP", ".dockerconfigjson", "SSL_CERT_FILE", "HTTPS_PROXY", "no_proxy")


def taken(**environ: str) -> dict[str, str]:
    take_source_variables(environ)
    return environ


@pytest.mark.parametrize("entry", READ)
def test_what_sources_read_gets_its_own_name(entry: str) -> None:
    assert taken(**{f"{SOURCE_VARIABLES}{entry}": "x", "LANG": "C"}) == {entry: "x", "LANG": "C"}


@given(st.from_regex(r"[A-Za-z_.][A-Za-z0-9_.]{0,12}", fullmatch=True))
def test_no_other_entry_is_a_variable(entry: str) -> None:
    read = entry in SOURCE_ENTRIES or entry.startswith(("AWS_", "GOOGLE_", "REGISTRY_"))
    assert (entry in taken(**{f"{SOURCE_VARIABLES}{entry}": "x"})) == read


def test_a_variable_of_the_pod_comes_before_an_entry() -> None:
    """Such as the identity that a cloud gives, and what a pod template says."""
    assert taken(AWS_REGION="here", **{f"{SOURCE_VARIABLES}AWS_REGION": "there"}) == {"AWS_REGION": "here"}


def test_without_a_prefix_nothing_changes() -> None:
    by_hand = {"HF_TOKEN": "x", "PYTHONPATH": "/mine", "ENGINEWRIGHT_STORE_AWS_REGION": "y"}
    assert taken(**by_hand) == by_hand
