"""What a response cache changes in a serving pod, and what it leaves alone."""

from __future__ import annotations

from typing import Any

from enginewright.core.config import OperatorConfig
from enginewright.core.labels import CONTAINER_QUALITY, CONTAINER_SERVER, CONTAINER_VERIFY
from enginewright.core.manifests import Owner, caches, deployment, revision_name
from enginewright.core.observed import EngineRecord
from enginewright.core.placement import Placement, place
from enginewright.core.request import build_key
from enginewright.core.spec import Spec, parse_spec
from support.cluster import SPEC, built

OWNER = Owner(name="minilm", namespace="prod", uid="u-1", fleet="encoders")
CACHE = {"responseCache": {"sizeMebibytes": 256}}


def spec(serving: dict[str, Any], **more: Any) -> Spec:
    found = parse_spec({**SPEC, "serving": serving, **more})
    assert isinstance(found, Spec)
    return found


def placed(of: Spec) -> Placement:
    found = place(of, 1 << 20, OperatorConfig())
    assert isinstance(found, Placement)
    return found


def pod(of: Spec) -> dict[str, Any]:
    record = EngineRecord(fingerprint="f" * 64, store_claim="enginewright-store", store_uri=of.store.uri,
                          outcome=built("f" * 64))
    return dict(deployment(OWNER, of, record, placed(of), OperatorConfig())["spec"]["template"]["spec"])


def container(of: Spec, name: str) -> dict[str, Any]:
    found = pod(of)
    (one,) = (one for one in (*found["initContainers"], *found["containers"]) if one["name"] == name)
    return dict(one)


def test_clients_find_the_cache_under_the_models_name_and_the_probe_the_engine_behind_it() -> None:
    server = container(spec(CACHE), CONTAINER_SERVER)
    assert f"--cache-config=local,size={256 << 20}" in server["args"]
    places = {mount["mountPath"]: mount.get("subPath") for mount in server["volumeMounts"]}
    assert places["/models/encoders"] == "front"
    assert str(places["/models/encoders_computed"]).startswith("f" * 64)
    assert "--model=encoders_computed " in server["startupProbe"]["exec"]["command"][-1]
    arguments = container(spec(CACHE), CONTAINER_VERIFY)["args"]
    assert arguments[arguments.index("--response-cache") + 1] == "encoders"


def test_a_queue_policy_stays_with_the_engine() -> None:
    server = container(spec({**CACHE, "queue": {"maxQueueSize": 8}}), CONTAINER_SERVER)
    assert [mount["mountPath"] for mount in server["volumeMounts"] if mount.get("subPath") == "config.pbtxt"] == [
        "/models/encoders_computed/config.pbtxt"]


def test_the_monitor_is_told_to_leave_hits_out() -> None:
    assert "--cached" in container(spec(CACHE, quality={}), CONTAINER_QUALITY)["args"]
    assert "--cached" not in container(spec({}, quality={}), CONTAINER_QUALITY)["args"]


def test_its_memory_is_added_where_the_operator_asks_for_memory() -> None:
    assert container(spec(CACHE), CONTAINER_SERVER)["resources"]["requests"]["memory"] == "1280Mi"
    stated = {**CACHE, "resources": {"requests": {"memory": "3Gi"}}}
    assert container(spec(stated), CONTAINER_SERVER)["resources"]["requests"]["memory"] == "3Gi"


def test_without_a_cache_pods_and_revisions_are_as_they_were_and_with_one_the_engine_is_the_same() -> None:
    plain, cached, config = spec({}), spec(CACHE), OperatorConfig()
    server = container(plain, CONTAINER_SERVER)
    assert not any("cache" in word for word in server["args"])
    assert not any(mount.get("subPath") == "front" for mount in server["volumeMounts"])
    assert "--response-cache" not in container(plain, CONTAINER_VERIFY)["args"]
    assert revision_name("f" * 64, plain, placed(plain), config) == "741baa24"
    assert revision_name("f" * 64, cached, placed(cached), config) != "741baa24"
    assert build_key(plain) == build_key(cached)


def test_a_deployment_tells_whether_its_servers_cache() -> None:
    assert caches(pod(spec(CACHE)))
    assert not caches(pod(spec({})))
