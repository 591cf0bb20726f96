"""This machine's package index, told to a build."""

from __future__ import annotations

import subprocess

import pytest

from images import index

CUSTOM = "https://user:p%40ss@index.example/simple"


@pytest.mark.parametrize(
    ("environment", "pip", "uv", "expected"),
    [
        ({}, "", "", {}),
        ({"PIP_INDEX_URL": CUSTOM}, "", "", {"PIP_INDEX_URL": CUSTOM, "UV_DEFAULT_INDEX": CUSTOM}),
        ({"UV_INDEX_URL": CUSTOM}, "", "", {"PIP_INDEX_URL": CUSTOM, "UV_DEFAULT_INDEX": CUSTOM}),
        ({}, f"global.index-url='{CUSTOM}'", "", {"PIP_INDEX_URL": CUSTOM, "UV_DEFAULT_INDEX": CUSTOM}),
        ({}, "", f'index-url = "{CUSTOM}"', {"PIP_INDEX_URL": CUSTOM, "UV_DEFAULT_INDEX": CUSTOM}),
        (
            {},
            "",
            f'[[index]]\nurl = "{CUSTOM}"\ndefault = true\n[[index]]\nurl = "https://more.example"',
            {
                "PIP_INDEX_URL": CUSTOM,
                "UV_DEFAULT_INDEX": CUSTOM,
                "PIP_EXTRA_INDEX_URL": "https://more.example",
                "UV_INDEX": "https://more.example",
            },
        ),
        (
            {"PIP_TRUSTED_HOST": "a.example"},
            "global.trusted-host='b.example'",
            "",
            {"PIP_TRUSTED_HOST": "a.example", "UV_INSECURE_HOST": "a.example"},
        ),
        (
            {},
            "global.extra-index-url='\\nhttps://a.example\\nhttps://b.example'",
            "",
            {
                "PIP_EXTRA_INDEX_URL": "https://a.example https://b.example",
                "UV_INDEX": "https://a.example https://b.example",
            },
        ),
        ({"UV_INDEX_OWN_PASSWORD": "s"}, "", "", {"UV_INDEX_OWN_PASSWORD": "s"}),
        ({"PIP_FIND_LINKS": "/here", "PIP_CERT": "/ca.pem", "HOME": "/root"}, "global.cert='/ca.pem'", "", {}),
    ],
    ids=["none", "pip", "uv", "pip-file", "uv-file", "uv-indexes", "environment-wins", "list", "credentials", "places"],
)
def test_settings(environment: dict[str, str], pip: str, uv: str, expected: dict[str, str]) -> None:
    assert index.settings(environment, pip, uv) == expected


def test_each_tool_keeps_its_own_value_where_both_are_set() -> None:
    found = index.settings({"PIP_DEFAULT_TIMEOUT": "60", "UV_HTTP_TIMEOUT": "90"}, "", "")
    assert found == {"PIP_DEFAULT_TIMEOUT": "60", "UV_HTTP_TIMEOUT": "90"}


def test_a_shell_reads_the_exports_back() -> None:
    value = 'it\'s $HOME; `x` "y"'
    script = index.shell_exports({"PIP_INDEX_URL": value}) + 'printf %s "$PIP_INDEX_URL"'
    assert subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout == value
