"""Names of models and addresses in the URLs that the operator asks: no part of one becomes part of another."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from enginewright.clients.errors import UnexpectedError
from enginewright.clients.urls import pod_url

NAMES = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("/?#%@:.\\&;= \n"), min_size=1, max_size=16)
ADDRESSES = st.ip_addresses().map(str)


@given(ADDRESSES, st.integers(1, 65535), NAMES)
def test_a_name_stays_one_segment_of_the_path(address: str, port: int, name: str) -> None:
    if name in (".", ".."):
        with pytest.raises(UnexpectedError):
            pod_url(address, port, "v2", "models", name, "infer")
        return
    url = pod_url(address, port, "v2", "models", name, "infer")
    parts = urlsplit(url)
    assert (ip_address(parts.hostname or ""), parts.port) == (ip_address(address), port)
    assert (parts.username, parts.query, parts.fragment) == (None, "", "")
    assert [unquote(part) for part in parts.path.split("/")] == ["", "v2", "models", name, "infer"]
    # As aiohttp sends it.
    sent = URL(url)
    assert (sent.host, sent.port) == (parts.hostname, port)
    assert sent.raw_path.count("/") == 4
    assert (sent.raw_query_string, sent.raw_fragment) == ("", "")


@given(st.text(max_size=20) | st.sampled_from(["localhost", "evil.example", "10.0.0.1@evil", "10.0.0.1:80/", "0x7f.1",
                                               "127.1", "::1]:80/", "10.0.0.1\n", "fe80::1%eth0/x", ""]))
def test_only_an_address_is_asked(text: str) -> None:
    try:
        address = ip_address(text)
    except ValueError:
        with pytest.raises(UnexpectedError):
            pod_url(text, 80, "metrics")
        return
    assert getattr(address, "scope_id", None) or urlsplit(pod_url(text, 80, "metrics")).hostname == str(address)
