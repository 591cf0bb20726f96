"""The operator's settings from a mounted file: the fields of ``OperatorConfig``, read strictly."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import yaml

from enginewright.core.config import DefaultStore, OperatorConfig, Prices
from enginewright.core.default_store import store_of
from enginewright.core.server_args import bad_arguments
from enginewright.core.spec import Spec, parse_spec, validate
from enginewright.core.spec.pod_template_rules import JOBS
from enginewright.core.spec.quality_rules import ENOUGH, TOO_LITTLE, too_little
from enginewright_builder.contract import ContractError, as_written, load, quoted

LIBRARIES = ("LD_PRELOAD", "LD_LIBRARY_PATH")


class SettingsError(ValueError):
    """The message names the file, the field, the value and what is expected."""


def read_settings(path: Path | None) -> OperatorConfig:
    """``path`` holds YAML or JSON; None gives the defaults. Raises :class:`SettingsError`."""
    if path is None:
        return OperatorConfig()
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, yaml.YAMLError) as error:  # ValueError for dates that no calendar has
        raise SettingsError(f"{path}: is not YAML: {error}") from error
    if not isinstance(document, dict | None):
        raise SettingsError(f"{path}: expected fields and their values, got {quoted(document)[:60]}")
    try:
        config = load(OperatorConfig, json.dumps(document or {}, default=str))
    except ContractError as error:
        raise SettingsError(f"{path}: {error}") from error
    _refuse_negative(path, config)
    _refuse_senseless_prices(path, config.prices)
    _refuse_a_monitor_that_cannot_start(path, config)
    _refuse_what_jobs_may_not_have(path, config)
    _refuse_a_store_that_is_none(path, config.default_store)
    for bad in bad_arguments(config.server_args):
        raise SettingsError(f"{path}: server_args[{bad.index}]: got {bad.text!r}, {bad.message}; {bad.remedy}")
    return config


def _refuse_negative(path: Path, config: OperatorConfig) -> None:
    for name, value in _integers(config):
        if value < 0:
            raise SettingsError(f"{path}: {name}: got {value}, expected 0 or more")


def _refuse_senseless_prices(path: Path, prices: Prices) -> None:
    for device, price in prices.per_hour.items():
        if not (math.isfinite(price) and price > 0):
            raise SettingsError(f"{path}: prices.per_hour.{device}: got {as_written(price)}, expected more than 0; "
                                "leave out a device class that has no price")
    if prices.per_hour and not prices.currency:
        raise SettingsError(f"{path}: prices.currency: got '', expected a currency such as EUR beside prices.per_hour")


def _refuse_a_monitor_that_cannot_start(path: Path, config: OperatorConfig) -> None:
    """As the spec's own limit, whose place this one takes in every object that has none."""
    limit = config.quality_resources.limits.get("memory")
    if limit is None:
        return
    field = f"{path}: quality_resources.limits.memory: got {limit!r}"
    try:
        refused = too_little(limit)
    except ValueError as error:
        raise SettingsError(f"{field}, expected a quantity such as 2Gi") from error
    if refused:
        raise SettingsError(f"{field}, {TOO_LITTLE}; {ENOUGH}")


def _refuse_what_jobs_may_not_have(path: Path, config: OperatorConfig) -> None:
    """As in an object's own template for Jobs: what the operator, Kubernetes and the builder image write themselves."""
    for name, given in (("job_labels", config.job_labels), ("job_annotations", config.job_annotations)):
        for key in given:
            if key.startswith(JOBS.reserved_keys):
                raise SettingsError(f"{path}: {name}: got {key!r}, which the operator sets; choose a key with a "
                                    "prefix of your own")
    for variable in config.job_env:
        if variable in LIBRARIES:
            raise SettingsError(f"{path}: job_env: got {variable!r}, which the image sets; remove it")


def _refuse_a_store_that_is_none(path: Path, store: DefaultStore) -> None:
    """As in an object: ``spec.store`` of one with nothing else to refuse."""
    if not store.uri:
        if store.secret or store.service_account_name:
            raise SettingsError(f"{path}: default_store.uri: got '', expected a store beside its credentials")
        return
    spec = parse_spec({"source": {"uri": "pvc://models/any"}, "placement": {"accelerator": "cpu"},
                       "store": store_of(store)})
    problems = validate(spec) if isinstance(spec, Spec) else spec
    if problems:
        raise SettingsError(f"{path}: default_store, in place of spec.store: {problems[0]}")


def _integers(config: OperatorConfig) -> list[tuple[str, int]]:
    fields: list[tuple[str, Any]] = [(f.name, getattr(config, f.name)) for f in dataclasses.fields(config)]
    return [(name, value) for name, value in fields if isinstance(value, int) and not isinstance(value, bool)]
