"""The documents as a site, and what they tell readers to type and to look at: commands, options, fields, manifests."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs import hooks
from enginewright import cli
from enginewright.core.spec import Spec
from enginewright.core.spec.parse import parse_spec
from enginewright.core.spec.renames import RENAMES
from enginewright.core.spec.validate import validate
from enginewright.plugin import main as plugin
from enginewright_builder import by_hand
from support.schemas import object_schema

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
SCHEMA = object_schema(old_names=False)
VALUES: dict[str, Any] = yaml.safe_load((ROOT / "charts" / "enginewright" / "values.yaml").read_text())


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(language: str) -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for indent, text in re.findall(rf"^( *)```{language}\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL):
            yield page, re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)


def test_the_site_builds_and_no_link_is_dead(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True,
                          text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = (tmp_path / "site" / "how-to" / "first-model.html").read_text()
    assert 'href="../examples/cpu.yaml"' in shown
    assert shown.count("<ol>") == 1, "a block of code inside an item ends no list"
    listed = (tmp_path / "site" / "adr" / "index.html").read_text()
    assert all(f'href="{path.stem}.html"' in listed for path in (ROOT / "docs" / "adr").glob("0*.md"))
    assert re.findall(r'<(?:script|link|img)[^>]* (?:src|href)="https?://', shown) == [], "it fetches from elsewhere"


@pytest.mark.parametrize(("page", "link", "wanted"), [
    ("index.md", "docs/user-guide.md#install", "user-guide.md#install"),
    ("index.md", "LICENSE", "LICENSE.txt"),
    ("user-guide.md", "../examples/cpu.yaml", "examples/cpu.yaml"),
    ("how-to/mig.md", "../user-guide.md", "../user-guide.md"),
    ("how-to/mig.md", "../../examples/mig.yaml", "../examples/mig.yaml"),
    ("examples/scaling/README.md", "../../docs/adr/README.md", "../../adr/README.md"),
    ("user-guide.md", "../operator/nowhere.py", "../operator/nowhere.py"),
    ("user-guide.md", "https://example.com/a", "https://example.com/a"),
])
def test_links_between_files_become_links_between_pages(page: str, link: str, wanted: str) -> None:
    assert hooks.rewritten(f"see [it]({link}).", page) == f"see [it]({wanted})."


@pytest.mark.parametrize(("written", "wanted"), [
    ("1. a\n\n   ```sh\n   b\n   ```\n\n2. c\n", "1. a\n\n    ```sh\n    b\n    ```\n\n2. c\n"),
    ("- a\n\n  ```sh\n  b\n  ```\n", "- a\n\n    ```sh\n    b\n    ```\n"),
    ("* a\n  b\n  - c\n", "* a\n    b\n    - c\n"),
    ("1. a\n\nb\n   c\n", "1. a\n\nb\n   c\n"),
    ("```yaml\n- a\n  b: c\n```\n", "```yaml\n- a\n  b: c\n```\n"),
    ("- a\n```sh\n  b\n```\n  c\n", "- a\n```sh\n  b\n```\n  c\n"),
])
def test_what_belongs_to_an_item_of_a_list_stands_as_deep_as_mkdocs_needs_it(written: str, wanted: str) -> None:
    assert hooks.indented(written) == wanted


def options(parser: argparse.ArgumentParser) -> set[str]:
    return {option for action in parser._actions for option in action.option_strings}


def verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (found,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(found.choices)


KNOWN = {"kubectl optimisedmodel": verbs(plugin.parser()), "enginewright": verbs(cli.parser())}


def commands() -> list[tuple[Path, str]]:
    """One line each: what a backslash continues is joined."""
    found = [(page, line.strip()) for page, text in blocks("sh") for line in text.replace("\\\n", " ").splitlines()]
    for page in PAGES:
        inline = re.findall(r"`((?:kubectl optimisedmodel|enginewright) [a-z][^`]*)`", page.read_text())
        found += [(page, text) for text in inline]
    return found


@pytest.mark.parametrize("program", KNOWN)
def test_commands_and_their_options_exist(program: str) -> None:
    seen = 0
    for page, line in commands():
        for call in re.findall(rf"(?:^|[ /]){re.escape(program)} ([^|&;#>]*)", line):
            verb, *rest = call.split()
            if not re.fullmatch(r"[a-z]+", verb):
                continue
            seen += 1
            assert verb in KNOWN[program], f"{ids(page)}: {line}"
            given = {word.partition("=")[0] for word in rest if word.startswith("-") and word != "-"}
            assert given <= options(KNOWN[program][verb]), f"{ids(page)}: {line}"
    assert seen > 3


def test_options_of_the_builder_exist() -> None:
    known = set(re.findall(r'"(--[a-z-]+)"', Path(by_hand.__file__).read_text()))
    seen = 0
    for page, line in commands():
        for call in re.findall(r"enginewright-build (--[^|&;#>]*)", line):
            seen += 1
            assert set(re.findall(r"(?<= )--[a-z-]+|^--[a-z-]+", call)) <= known, f"{ids(page)}: {line}"
    assert seen > 2


def test_manifests_are_good() -> None:
    seen = 0
    for page, text in blocks("yaml"):
        if "kind: OptimisedModel" not in text:
            continue
        seen += 1
        spec = parse_spec(yaml.safe_load(text)["spec"])
        assert isinstance(spec, Spec), f"{ids(page)}: {spec}"
        assert tuple(validate(spec)) == (), ids(page)
    assert seen > 2


# Of pods, CRDs and Flux's own kinds; and one that is misspelt to show what is said to that.
NOT_OURS = {"spec.schedulerName", "spec.nodeName", "status.storedVersions", "spec.timeout", "spec.engine.precison"}


# Settings of the chart that users are told to remove.
GONE = {"config.serverBackends", "config.serverPythonRuntimes", "config.batcherResources",
        "config.proveInServerImage"}


# What was decided, and what changed, is told in the words of its day.
HISTORY = {one.old_path for one in RENAMES}


def exists(path: str) -> bool:
    node: Any = SCHEMA
    for step in path.removesuffix(".").split("."):
        node = node.get("items", node)
        if "properties" not in node:
            return True  # a map: its keys are anybody's
        node = node["properties"].get(step.removesuffix("[]"))
        if node is None:
            return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_fields_that_are_named_exist(page: Path) -> None:
    step = "[a-zA-Z][a-zA-Z0-9-]*"
    named = set(re.findall(rf"[`.({{]\.?((?:spec|status)\.{step}(?:(?:\[\])?\.{step})*)", page.read_text()))
    history = HISTORY if page.parent.name == "adr" or page.name == "CHANGELOG.md" else set()
    assert {path for path in named if not exists(path)} - NOT_OURS - history == set()


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_values_of_the_chart_that_are_named_exist(page: Path) -> None:
    roots = "config|crds|rbac|metrics|networkPolicy|serviceAccount"
    named = set(re.findall(rf"`((?:{roots})\.[a-zA-Z.]+)(?::[^`]*)?`", page.read_text()))
    for path in (name for name in named - GONE if Path(name).suffix not in (".json", ".yaml", ".pbtxt", ".py")):
        node: Any = VALUES
        for step in path.split("."):
            assert isinstance(node, dict), path
            assert step in node, path
            node = node[step]


def test_every_page_is_in_the_navigation_or_left_out_on_purpose() -> None:
    """Which the build refuses to pass over only because it is told to."""
    text = (ROOT / "mkdocs.yml").read_text()
    assert "omitted_files: warn" in text
    assert re.findall(r"^  /.*", text.partition("not_in_nav")[2].partition("\nnav:")[0], re.MULTILINE) == [
        "  /adr/0*.md", "  /benchmarks/*.md", "  /runbooks/Enginewright*.md", "  /examples/", "  /charts/"]
