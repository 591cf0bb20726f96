"""Secrets of a build: what they hold, and that they do not stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from images import host


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*host.CERTIFICATE_VARIABLES, "PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_the_index_is_passed_on_and_the_file_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example/simple")
    with host.index_secrets(tmp_path) as secrets:
        exports = secrets["index-env"]
        assert "export UV_DEFAULT_INDEX=https://index.example/simple\n" in exports.read_text()
        assert exports.parent.stat().st_mode & 0o077 == 0
    assert not exports.exists()


def test_uvs_own_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "config" / "uv").mkdir(parents=True)
    (tmp_path / "config" / "uv" / "uv.toml").write_text('index-url = "https://uv.example/simple"')
    with host.index_secrets(tmp_path) as secrets:
        assert "export PIP_INDEX_URL=https://uv.example/simple\n" in secrets["index-env"].read_text()


@pytest.mark.parametrize(
    ("named", "expected"), [(True, "named.pem"), (False, "system.pem")], ids=["variable", "system"]
)
def test_certificates_are_the_named_ones_before_the_systems(
    named: bool, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("named.pem", "system.pem"):
        (tmp_path / name).write_text("x")
    monkeypatch.setattr(host, "SYSTEM_CERTIFICATES", tmp_path / "system.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / ("named.pem" if named else "absent.pem")))
    assert host.certificates() == tmp_path / expected


def test_mavens_settings_are_passed_on_where_there_are_any(tmp_path: Path) -> None:
    settings = tmp_path / "home" / ".m2" / "settings.xml"
    settings.parent.mkdir(parents=True)
    settings.write_text("<settings/>")
    with host.index_secrets(tmp_path) as secrets:
        assert secrets["maven-settings"] == settings


def test_without_certificates_there_is_no_such_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "SYSTEM_CERTIFICATES", tmp_path / "absent.pem")
    with host.index_secrets(tmp_path) as secrets:
        assert set(secrets) == {"index-env"}
