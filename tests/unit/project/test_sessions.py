"""Which files make HTTP clients: each of them says what it does with redirects, and no other file needs to be read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = [*(ROOT / "operator/enginewright").rglob("*.py"), *(ROOT / "builders/enginewright_builder").rglob("*.py")]
# What makes a client, or is one, of libraries that follow redirects, as aiohttp and requests do by default, and what
# reads answers.
CLIENTS = {
    "aiohttp": {"ClientSession", "request", "TCPConnector"},
    "requests": {"Session", "session", "get", "post", "put", "patch", "delete", "head", "options", "request"},
    "httpx": {"Client", "AsyncClient", "get", "post", "put", "patch", "delete", "head", "options", "request", "stream"},
    "urllib.request": {"urlopen", "build_opener", "OpenerDirector", "Request", "urlretrieve"},
    "httptools": {"HttpResponseParser"},
    "urllib3": {"PoolManager", "ProxyManager", "request", "connection_from_url"},
}
ALLOWED = {
    # These follow none.
    "operator/enginewright/clients/direct.py": {"aiohttp.ClientSession", "aiohttp.TCPConnector"},
    "operator/enginewright/clients/gets.py": {"httptools.HttpResponseParser"},
    "operator/enginewright/clients/bounded.py": {"requests.Session"},
    "operator/enginewright/activator/http_proxy.py": {"aiohttp.TCPConnector"},
    "builders/enginewright_builder/sources/registry.py": {"httpx.Client"},
    "builders/enginewright_builder/triton/client.py": {"httpx.AsyncClient"},
    "builders/enginewright_builder/generate/client.py": {"httpx.AsyncClient"},
    "builders/enginewright_builder/generate/server.py": {"httpx.AsyncClient"},
    # Loopback, from a thread of its own; follows no redirect, which is the default.
    "builders/enginewright_builder/triton/gpu_metrics.py": {"httpx.Client"},
    # A source by https:// is fetched with redirects, each of which is checked.
    "builders/enginewright_builder/sources/https.py": {"httpx.Client"},
}


def clients_in(tree: ast.AST) -> Iterator[str]:
    """``library.name`` of each that is imported or read, by whatever name the file has for the library."""
    libraries = dict(pair for node in ast.walk(tree) for pair in _imported(node))
    for whole in libraries.values():
        library, _, name = whole.rpartition(".")
        if name in CLIENTS.get(library, ()):
            yield whole
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            library = _library(node.value, libraries)
            if node.attr in CLIENTS.get(library, ()):
                yield f"{library}.{node.attr}"


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The file's names for what it imports."""
    if isinstance(node, ast.Import):
        for name in node.names:
            top = name.name.split(".")[0]
            yield (name.asname, name.name) if name.asname else (top, top)
    elif isinstance(node, ast.ImportFrom) and node.module:
        for name in node.names:
            yield name.asname or name.name, f"{node.module}.{name.name}"


def _library(node: ast.expr, libraries: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_library(node.value, libraries)}.{node.attr}"
    return libraries.get(node.id, "") if isinstance(node, ast.Name) else ""


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in SOURCES}


def test_only_files_that_are_known_make_clients(trees: dict[str, ast.Module]) -> None:
    assert {path: names for path, tree in trees.items() if (names := set(clients_in(tree)))} == ALLOWED


def test_redirects_are_asked_for_only_where_each_is_checked(trees: dict[str, ast.Module]) -> None:
    asking = [path for path, tree in trees.items() for node in ast.walk(tree)
              if isinstance(node, ast.keyword) and node.arg in ("follow_redirects", "allow_redirects")
              and not (isinstance(node.value, ast.Constant) and node.value.value is False)]
    assert asking == [f"builders/enginewright_builder/sources/{name}.py" for name in ("hub_client", "https")]


@pytest.mark.parametrize(("text", "found"), [
    ("import aiohttp\naiohttp.ClientSession()", {"aiohttp.ClientSession"}),
    ("import aiohttp as a\na.ClientSession()", {"aiohttp.ClientSession"}),
    ("from aiohttp import ClientSession as C", {"aiohttp.ClientSession"}),
    ("import requests\nrequests.get('x')", {"requests.get"}),
    ("import requests\nclass C(requests.Session): ...", {"requests.Session"}),
    ("import urllib.request\nurllib.request.urlopen('x')", {"urllib.request.urlopen"}),
    ("from urllib import request\nrequest.urlopen('x')", {"urllib.request.urlopen"}),
    ("import httpx\nhttpx.Client()", {"httpx.Client"}), ("from aiohttp import web\nweb.Request", set()),
])
def test_clients_are_found(text: str, found: set[str]) -> None:
    assert set(clients_in(ast.parse(text))) == found
