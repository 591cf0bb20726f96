"""The plugin's manifest against the rules that krew publishes, and the archive that it names."""

from __future__ import annotations

import copy
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from enginewright import __version__
from krew import windows
from krew.archive import LEFT_OUT, pack
from krew.manifest import PLATFORMS, Archive, render

ROOT = Path(__file__).resolve().parents[3]
KREW = ROOT / "hack" / "krew"
# Semantic, with a v.
VERSION = r"^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$"
# From krew's developer guide ("Writing Krew plugin manifests") and internal/index/validation/validate.go.
TEXT = {"type": "string", "minLength": 1}
SELECTOR = {"type": "object", "minProperties": 1, "additionalProperties": False, "properties": {
    "matchLabels": {"type": "object", "minProperties": 1, "additionalProperties": False, "properties": {
        "os": {"enum": ["linux", "darwin", "windows"]}, "arch": {"enum": ["amd64", "arm64", "arm", "386", "ppc64le"]}}},
    "matchExpressions": {"type": "array", "minItems": 1}}}
REQUIRED = ["selector", "uri", "sha256", "bin"]
PLATFORM = {"type": "object", "additionalProperties": False, "required": REQUIRED, "properties": {
    "selector": SELECTOR, "uri": {"type": "string", "pattern": r"^https://.*\.(tar\.gz|zip)$"},
    "sha256": {"type": "string", "pattern": "^[a-f0-9]{64}$"}, "bin": TEXT,
    "files": {"type": "array", "minItems": 1}}}
SCHEMA = {
    "type": "object", "additionalProperties": False, "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "krew.googlecontainertools.github.com/v1alpha2"},
        "kind": {"const": "Plugin"},
        "metadata": {"type": "object", "additionalProperties": False, "required": ["name"], "properties": {
            "name": {"type": "string", "pattern": r"^[\w-]+$"}}},
        "spec": {
            "type": "object", "additionalProperties": False, "required": ["version", "shortDescription", "platforms"],
            "properties": {
                "version": {"type": "string", "pattern": VERSION},
                "homepage": TEXT, "description": TEXT, "caveats": TEXT,
                "shortDescription": {"type": "string", "minLength": 1, "maxLength": 60, "pattern": r"^[^\r\n]*$"},
                "platforms": {"type": "array", "minItems": 1, "items": PLATFORM},
            },
        },
    },
}


@pytest.fixture
def manifest() -> dict[str, Any]:
    archives = [Archive(platform=one, version=__version__, content=one.arch.encode()) for one in PLATFORMS]
    template = (KREW / "optimisedmodel.yaml").read_text()
    found: dict[str, Any] = yaml.safe_load(render(template, archives, "https://dl.example.com/v1/", "https://example.com"))
    return found


def test_krew_would_take_the_manifest(manifest: dict[str, Any]) -> None:
    jsonschema.validate(manifest, SCHEMA)
    assert manifest["metadata"]["name"] == "optimisedmodel", "the file's name, and kubectl's word"
    assert manifest["spec"]["version"] == f"v{__version__}"
    first = manifest["spec"]["platforms"][0]
    assert first["sha256"] == hashlib.sha256(b"amd64").hexdigest()
    assert first["uri"] == f"https://dl.example.com/v1/kubectl-optimisedmodel_v{__version__}_linux_amd64.tar.gz"
    selectors = [tuple(platform["selector"]["matchLabels"].values()) for platform in manifest["spec"]["platforms"]]
    assert len(set(selectors)) == len(selectors)


@pytest.mark.parametrize(("path", "value"), [
    (("spec", "version"), "1.0"), (("spec", "platforms"), []), (("spec", "shortDescription"), "two\nlines"),
    (("spec", "platforms", 0, "sha256"), "$digest"), (("spec", "platforms", 0, "selector"), {}),
    (("metadata", "name"), "optimised model"), (("spec", "website"), "https://example.com"),
])
def test_the_schema_would_refuse(manifest: dict[str, Any], path: tuple[Any, ...], value: object) -> None:
    broken = copy.deepcopy(manifest)
    node: Any = broken
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, SCHEMA)


def test_the_same_folder_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name / "lib"
        folder.mkdir(parents=True)
        (folder / "b.py").write_text("")
        (folder / "a.py").write_text("a")
        (folder / "INSTALLER").write_text(name)
        os.utime(folder / "a.py", (len(name), 7 + ord(name[0])))
    first, second = pack(tmp_path / "one"), pack(tmp_path / "two")
    assert first == second
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        assert archive.getnames() == ["lib/a.py", "lib/b.py"]


def test_on_windows_a_program_starts_the_plugin_beside_it(tmp_path: Path) -> None:
    """Here Python runs what the launcher would hand to it: the archive at the program's end."""
    package = tmp_path / "lib" / "enginewright" / "plugin"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text("")
    (package / "main.py").write_text("import sys\ndef main(): print('here', *sys.argv[1:])")
    program = tmp_path / windows.PROGRAM
    program.write_bytes(windows.program("amd64"))
    assert program.read_bytes().startswith(b"MZ"), "a program of Windows"
    link = tmp_path / "bin" / "kubectl-optimisedmodel.exe"
    link.parent.mkdir()
    link.symlink_to(program)
    stranger = tmp_path / "downloads"
    stranger.mkdir()
    (stranger / "pathlib.py").write_text("print('taken')")
    done = subprocess.run([sys.executable, link, "explain", "minilm"], cwd=stranger, text=True, capture_output=True,
                          timeout=240, check=False)
    assert done.stdout == "here explain minilm\n", done.stderr


def test_a_zip_has_the_same_bytes_each_time_and_no_bookkeeping(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "a.py").write_text("a")
    (tmp_path / "lib" / "INSTALLER").write_text("uv")
    first = windows.pack_zip(tmp_path, frozenset(LEFT_OUT))
    os.utime(tmp_path / "lib" / "a.py", (1, 7))
    assert windows.pack_zip(tmp_path, frozenset(LEFT_OUT)) == first
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        assert archive.namelist() == ["lib/a.py"]


def test_every_platform_that_users_have_gets_an_archive(manifest: dict[str, Any]) -> None:
    bins = {tuple(one["selector"]["matchLabels"].values()): one["bin"] for one in manifest["spec"]["platforms"]}
    assert bins == {
        ("linux", "amd64"): "kubectl-optimisedmodel", ("linux", "arm64"): "kubectl-optimisedmodel",
        ("darwin", "amd64"): "kubectl-optimisedmodel", ("darwin", "arm64"): "kubectl-optimisedmodel",
        ("windows", "amd64"): "kubectl-optimisedmodel.exe"}


def _installed(folder: Path, program: str) -> Path:
    """The launcher in a folder of links, as krew installs it, beside a plugin that is ``program``."""
    home, path = folder / "store", folder / "bin"
    package = home / "lib" / "enginewright" / "plugin"
    package.mkdir(parents=True)
    path.mkdir()
    for each in (package.parent, package):  # without these an installed package of the name would come first
        (each / "__init__.py").touch()
    (package / "__main__.py").write_text(program)
    (path / "kubectl-optimisedmodel").symlink_to(shutil.copy(KREW / "kubectl-optimisedmodel", home))
    return path


def test_the_launcher_runs_no_python_of_the_current_folder(tmp_path: Path) -> None:
    path = _installed(tmp_path, "import argparse, json; print('here')")
    stranger = tmp_path / "downloads"
    package = stranger / "enginewright" / "plugin"
    package.mkdir(parents=True)
    for file in (stranger / "argparse.py", stranger / "sys.py", stranger / "runpy.py", package.parent / "__init__.py",
                 package / "__init__.py", package / "__main__.py"):
        file.write_text("print('taken')")
    done = subprocess.run([path / "kubectl-optimisedmodel", "explain", "minilm"], cwd=stranger, text=True,
                          capture_output=True, timeout=240, check=False)
    assert done.stdout == "here\n", done.stderr


def test_what_krew_links_to_starts_the_plugin_beside_it(tmp_path: Path) -> None:
    """Through a link, as krew installs it, and whatever the name of Python is."""
    path = _installed(tmp_path, "import sys; print('here', *sys.argv[1:])")

    def run(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run([path / "kubectl-optimisedmodel", "explain", "minilm"], env=environment, text=True,
                              capture_output=True, timeout=240, check=False)

    assert run(dict(os.environ)).stdout == "here explain minilm\n"
    (path / "python3").write_text("#!/bin/sh\nexit 1\n")
    (path / "python3").chmod(0o755)
    for tool in ("dirname", "readlink"):
        (path / tool).symlink_to(shutil.which(tool) or tool)
    refused = run({"PATH": str(path)})
    assert refused.returncode == 3
    assert re.search(r"needs Python 3\.11", refused.stderr)
