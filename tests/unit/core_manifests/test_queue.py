"""What a queue policy changes in a serving pod, and what it leaves alone."""

from __future__ import annotations

from typing import Any

from enginewright.core.config import OperatorConfig
from enginewright.core.labels import CONTAINER_SERVER, CONTAINER_VERIFY
from enginewright.core.manifests import Owner, deployment, revision_name
from enginewright.core.observed import EngineRecord
from enginewright.core.placement import Placement, place
from enginewright.core.request import build_key, build_request, queue_request
from enginewright.core.spec import Spec, parse_spec
from enginewright_builder.contract import QueueLevel, QueuePolicy, QueueRequest, RuntimeRequest
from support.cluster import SPEC, built, resolved

OWNER = Owner(name="minilm", namespace="prod", uid="u-1", fleet="encoders")
QUEUE = {"maxQueueSize": 8, "priorityLevels": 2, "priorityQueuePolicy": [
    {"level": 1, "defaultTimeoutMicroseconds": 5000, "timeoutAction": "continue", "allowTimeoutOverride": True}]}


def spec(**serving: Any) -> Spec:
    found = parse_spec({**SPEC, "serving": serving})
    assert isinstance(found, Spec)
    return found


def placed(of: Spec) -> Placement:
    found = place(of, 1 << 20, OperatorConfig())
    assert isinstance(found, Placement)
    return found


def container(of: Spec, name: str) -> dict[str, Any]:
    record = EngineRecord(fingerprint="f" * 64, store_claim="enginewright-store", store_uri=of.store.uri,
                          outcome=built("f" * 64))
    pod = deployment(OWNER, of, record, placed(of), OperatorConfig())["spec"]["template"]["spec"]
    (found,) = (one for one in (*pod["initContainers"], *pod["containers"]) if one["name"] == name)
    return dict(found)


def test_the_verify_container_gets_the_policy_and_the_server_what_it_makes_of_it() -> None:
    arguments = container(spec(queue=QUEUE), CONTAINER_VERIFY)["args"]
    assert QueueRequest.from_json(arguments[arguments.index("--queue") + 1]) == QueueRequest(
        policy=QueuePolicy(max_queue_size=8), priority_levels=2, default_priority_level=2,
        levels=(QueueLevel(level=1, policy=QueuePolicy(timeout_us=5000, timeout_action="continue",
                                                       allow_timeout_override=True)),))
    mounts = container(spec(queue=QUEUE), CONTAINER_SERVER)["volumeMounts"]
    places = [mount["mountPath"] for mount in mounts]
    assert {"name": "smoke-test", "mountPath": "/models/encoders/config.pbtxt", "subPath": "config.pbtxt",
            "readOnly": True} in mounts
    assert places.index("/models/encoders") < places.index("/models/encoders/config.pbtxt")


def test_without_a_policy_pods_and_revisions_are_as_they_were() -> None:
    assert "--queue" not in container(spec(), CONTAINER_VERIFY)["args"]
    plain, config = spec(), OperatorConfig()
    assert all("config.pbtxt" not in mount["mountPath"]
               for mount in container(plain, CONTAINER_SERVER)["volumeMounts"])
    assert revision_name("f" * 64, plain, placed(plain), config) == "741baa24"


def test_a_policy_makes_a_revision_and_no_engine() -> None:
    one, other, plain, config = spec(queue=QUEUE), spec(queue={"maxQueueSize": 9}), spec(), OperatorConfig()
    names = {revision_name("f" * 64, of, placed(of), config) for of in (one, other, plain)}
    assert len(names) == 3
    source = resolved().source
    assert source is not None
    engines = {build_request("minilm", of, source, placed(of), config, RuntimeRequest()).fingerprint()
               for of in (one, other, plain)}
    assert len(engines) == len({build_key(of) for of in (one, other, plain)}) == 1


def test_the_lowest_level_is_that_of_requests_that_name_none() -> None:
    asked = spec(queue={"priorityLevels": 4}).serving.queue
    named = spec(queue={"priorityLevels": 4, "defaultPriorityLevel": 2}).serving.queue
    assert asked
    assert named
    assert (queue_request(asked).default_priority_level, queue_request(named).default_priority_level) == (4, 2)
