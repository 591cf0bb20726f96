"""The settings file: read strictly, with errors that name the field."""

from __future__ import annotations

from pathlib import Path

import pytest

from enginewright.core.config import DefaultStore, Images, OperatorConfig, Prices
from enginewright.settings import SettingsError, read_settings


def written(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text)
    return path


def test_no_file_gives_the_defaults() -> None:
    assert read_settings(None) == OperatorConfig()


@pytest.mark.parametrize("text", ["", "{}", "# nothing\n"])
def test_an_empty_file_gives_the_defaults(tmp_path: Path, text: str) -> None:
    assert read_settings(written(tmp_path, text)) == OperatorConfig()


def test_fields_are_read(tmp_path: Path) -> None:
    config = read_settings(written(tmp_path, """
        images: {builder: "b:1", server: "s:1", operator: "o:1"}
        server_args: [--log-verbose=1]
        server_resources: {requests: {cpu: "2"}, limits: {memory: 4Gi}}
        job_ttl: 60
        """))
    assert config.images == Images(builder="b:1", server="s:1", operator="o:1")
    assert config.server_args == ("--log-verbose=1",)
    assert (config.server_resources.requests, config.server_resources.limits) == ({"cpu": "2"}, {"memory": "4Gi"})
    assert config.job_ttl == 60


def test_prices_are_read(tmp_path: Path) -> None:
    config = read_settings(written(tmp_path, "prices: {currency: EUR, per_hour: {cpu: 1, NVIDIA-H200/1g.18gb: 0.6}}"))
    assert config.prices == Prices(currency="EUR", per_hour={"cpu": 1.0, "NVIDIA-H200/1g.18gb": 0.6})


def test_the_store_of_objects_that_name_none_is_read(tmp_path: Path) -> None:
    config = read_settings(written(tmp_path, "default_store: {uri: s3://engines/all, secret: keys}"))
    assert config.default_store == DefaultStore(uri="s3://engines/all", secret="keys")
    nothing = read_settings(written(tmp_path, 'default_store: {uri: "", secret: "", service_account_name: ""}'))
    assert nothing.default_store == DefaultStore()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("default_store: {uri: engines}",
         "default_store, in place of spec.store: spec.store.uri: is not a valid value"),
        ("default_store: {uri: 'pvc://a/../b'}", "spec.store.uri: leaves its folder"),
        ("default_store: {uri: 'pvc://engines', secret: keys}", "spec.store.secretRef: has no meaning"),
        ("default_store: {uri: 's3://engines/a', secret: enginewright-engine-signing}", "is reserved for the operator"),
        ("default_store: {secret: keys}", "default_store.uri: got '', expected a store beside its credentials"),
        ("imagse: {}", "unknown field 'imagse'"),
        ("images: {bilder: x}", "images: unknown field 'bilder'"),
        ("job_ttl: soon", "job_ttl: expected a whole number, got 'soon'"),
        ("job_ttl: -1", "job_ttl: got -1, expected 0 or more"),
        ("pull_policy: Sometimes", "pull_policy: got 'Sometimes'"),
        ("server_args: python", "server_args: expected a list"),
        ("server_resources: {requests: {cpu: 2}}", "requests.cpu: expected a text, got 2"),
        ("job_labels: {enginewright.io/model: x}", "job_labels: got 'enginewright.io/model'"),
        ("job_annotations: {batch.kubernetes.io/x: y}", "job_annotations: got 'batch.kubernetes.io/x'"),
        ("job_labels: {kueue.x-k8s.io/queue-name: q}", "job_labels: got 'kueue.x-k8s.io/queue-name'"),
        ("job_env: {LD_PRELOAD: x}", "job_env: got 'LD_PRELOAD', which the image sets; remove it"),
        ("job_env: {HTTPS_PROXY: 1}", "job_env.HTTPS_PROXY: expected a text, got 1"),
        ("prices: {currency: EUR, per_hour: {cpu: 0}}", "prices.per_hour.cpu: got 0.0, expected more than 0"),
        ("prices: {currency: EUR, per_hour: {cpu: .inf}}", "prices.per_hour.cpu: got .inf, expected more than 0"),
        ("prices: {currency: EUR, per_hour: {cpu: -2}}", "prices.per_hour.cpu: got -2.0, expected more than 0"),
        ("prices: {currency: EUR, per_hour: {cpu: cheap}}", "per_hour.cpu: expected a number, got 'cheap'"),
        ("prices: {per_hour: {cpu: 1}}", "prices.currency: got '', expected a currency"),
        ('server_args: ["--log-verbose=1", "--metrics-port=9002"]',
         "server_args[1]: got '--metrics-port=9002', is 8002 on each replica, for the operator; remove it"),
        ("quality_resources: {limits: {memory: 128Mi}}",
         "quality_resources.limits.memory: got '128Mi', is less than the monitor needs for any model; "
         "write at least 256Mi"),
        ("quality_resources: {limits: {memory: 268435455}}", "quality_resources.limits.memory: expected a text"),
        ("quality_resources: {limits: {memory: lots}}",
         "quality_resources.limits.memory: got 'lots', expected a quantity such as 2Gi"),
        ("[1]", "expected fields and their values, got [1]"),
        ("a: [", "is not YAML"),
        ("a: 2023-99-99", "is not YAML: month must be in 1..12"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings(written(tmp_path, text))
    assert expected in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path))


@pytest.mark.parametrize("limits", ["{memory: 256Mi}", "{memory: 0.25Gi}", "{cpu: '1'}", "{}"])
def test_a_monitor_that_can_start_is_taken(tmp_path: Path, limits: str) -> None:
    read_settings(written(tmp_path, f"quality_resources: {{limits: {limits}}}"))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        read_settings(tmp_path / "none.yaml")
