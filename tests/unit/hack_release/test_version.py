"""One version in all files that name it."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest
import yaml

from enginewright import __version__
from enginewright.core.spec.crd import NAME
from release import version
from release.make import tags

ROOT = Path(__file__).resolve().parents[3]


def test_every_file_names_the_same_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert version.current() == __version__ == project["version"]
    chart = yaml.safe_load((ROOT / "charts" / "enginewright" / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    group = NAME.partition(".")[2]
    crd = yaml.load((ROOT / "crds" / f"{group}_optimisedmodels.yaml").read_text(), yaml.CSafeLoader)
    assert crd["metadata"]["labels"]["app.kubernetes.io/version"] == __version__


def test_the_changelog_has_the_version() -> None:
    assert f"\n## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for place in version.PLACES:
        target = tmp_path / place.path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place.path, target)
    return tmp_path


def test_all_files_get_another_version(tree: Path) -> None:
    before = {place.path: (tree / place.path).read_text() for place in version.PLACES}
    counts = {path: len(found) for path, found in version.found(tree).items()}
    version.change("1.20.3-rc.1", tree)
    assert version.current(tree) == "1.20.3-rc.1"
    assert {path: len(found) for path, found in version.found(tree).items()} == counts
    version.change(__version__, tree)
    assert {path: (tree / path).read_text() for path in before} == before


def test_files_that_differ_are_named(tree: Path) -> None:
    chart = tree / "charts" / "enginewright" / "Chart.yaml"
    chart.write_text(chart.read_text().replace(f"appVersion: {__version__}", "appVersion: 9.9.9"))
    with pytest.raises(ValueError, match=r"9\.9\.9.*make version"):
        version.current(tree)


@pytest.mark.parametrize("wrong", ["", "?", "1.0", "v1.0.0", "01.0.0"])
def test_what_is_no_version_is_refused(tree: Path, wrong: str) -> None:
    with pytest.raises(ValueError, match="no semantic version"):
        version.change(wrong, tree)


@pytest.mark.parametrize(("number", "expected"), [("0.1.0", ["0.1.0", "0.1"]), ("1.0.0-rc.1", ["1.0.0-rc.1"])])
def test_a_candidate_is_not_the_newest_of_its_line(number: str, expected: list[str]) -> None:
    assert tags(number) == expected
