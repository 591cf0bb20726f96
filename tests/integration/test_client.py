"""The client against a real apiserver: what it answers that the documentation does not say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from enginewright.clients import kube as module
from enginewright.clients.credentials import load_configuration
from enginewright.clients.errors import (
    AlreadyExistsError,
    ConflictError,
    NotFoundError,
    RefusedError,
    TransientError,
)
from enginewright.clients.events import (
    BURST,
    CONTROLLER,
    SERIES_INTERVAL,
    EventRecorder,
    Subject,
    event_name,
)
from enginewright.clients.kube import KubeClient, Object
from enginewright.clients.resources import CONFIG_MAP, DEPLOYMENT, EVENT, OPTIMISED_MODEL, SERVICE
from enginewright.core import labels
from enginewright.core.events import ACTIONS
from enginewright.core.plan import ABSENT, Event
from support.apiserver import Models, manifest, model

STATUS = {"observedGeneration": 1, "replicas": 1, "readyReplicas": 0, "selector": "a=b"}
BUILT = Event(type="Normal", reason="Built", action="Build", note="int8, 2.2 times as fast")


def config_map(name: str = "a", **data: str) -> Object:
    return manifest("v1", "ConfigMap", name, data=data)


def deployment() -> Object:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    return manifest("apps/v1", "Deployment", "d", spec={"selector": {"matchLabels": {"a": "b"}}, "template": template})


async def test_apply_is_silent_when_nothing_changes_and_takes_away_what_is_not_stated_any_more(
    kube: KubeClient, namespace: str
) -> None:
    first = await kube.apply(config_map(x="1", y="2"), namespace=namespace)
    again = await kube.apply(config_map(x="1", y="2"), namespace=namespace)
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert (await kube.apply(config_map(x="1"), namespace=namespace))["data"] == {"x": "1"}


async def test_create_and_delete(kube: KubeClient, namespace: str) -> None:
    await kube.create(config_map(), namespace=namespace)
    with pytest.raises(AlreadyExistsError):
        await kube.create(config_map(), namespace=namespace)
    with pytest.raises(ConflictError):
        await kube.delete(CONFIG_MAP, namespace, "a", uid="another")
    await kube.delete(CONFIG_MAP, namespace, "a")
    with pytest.raises(NotFoundError):
        await kube.delete(CONFIG_MAP, namespace, "a")


async def test_lists_come_in_pages_and_by_label(
    kube: KubeClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE", 2)
    for index in range(5):
        body = config_map(f"c{index}")
        body["metadata"]["labels"] = {"parity": str(index % 2)}
        await kube.create(body, namespace=namespace)
    odd = await kube.list_all(CONFIG_MAP, namespace, labels="parity=1")
    assert [item["metadata"]["name"] for item in odd] == ["c1", "c3"]
    assert len(await kube.list_all(CONFIG_MAP, namespace, labels="parity")) == 5


async def test_metadata_alone(models: Models) -> None:
    await models.create(model())
    (item,) = await models.kube.list_metadata(OPTIMISED_MODEL, models.namespace)
    assert item["metadata"]["name"] == "minilm"
    assert "spec" not in item


@pytest.mark.parametrize(
    "spec", [{"ports": [{"port": "eighty"}]}, {"ports": [{"port": 80, "colour": "red"}]}, {"ports": [{"port": 99999}]}]
)
async def test_a_manifest_that_does_not_fit_is_refused_whatever_the_status_code(
    kube: KubeClient, namespace: str, spec: Object
) -> None:
    with pytest.raises(RefusedError):
        await kube.apply(manifest("v1", "Service", "s", spec=spec), namespace=namespace)


async def test_status_is_written_whole(models: Models) -> None:
    version = (await models.create(model()))["metadata"]["resourceVersion"]
    written = await models.kube.apply_status(models.namespace, "minilm", version, STATUS)
    assert written["status"] == STATUS
    version = written["metadata"]["resourceVersion"]
    fewer = {"observedGeneration": 1, "replicas": 0, "readyReplicas": 0}
    written = await models.kube.apply_status(models.namespace, "minilm", version, fewer)
    assert written["status"] == fewer
    (owner,) = (one for one in written["metadata"]["managedFields"] if one["manager"] == labels.FIELD_MANAGER_STATUS)
    assert owner["fieldsV1"] == {"f:status": {}}, "half of the object would be a list of its fields otherwise"


async def test_status_is_not_written_onto_a_namesake(models: Models) -> None:
    before = await models.create(model())
    await models.delete()
    await models.create(model())
    with pytest.raises(ConflictError):
        await models.kube.apply_status(models.namespace, "minilm", before["metadata"]["resourceVersion"], STATUS)


def decided_on(found: Object) -> dict[str, Any]:
    metadata = found["metadata"]
    return {"uid": metadata["uid"], "version": metadata["resourceVersion"], "generation": metadata["generation"]}


async def test_replicas_have_an_owner_of_their_own(kube: KubeClient, namespace: str) -> None:
    made = await kube.apply(deployment(), namespace=namespace)
    await kube.scale(namespace, "d", 3, **decided_on(made))
    # An apply that does not state replicas leaves them, because their owner is another manager.
    found = await kube.apply(deployment(), namespace=namespace)
    assert found["spec"]["replicas"] == 3
    owners = [entry for entry in found["metadata"]["managedFields"] if entry.get("subresource") == "scale"]
    assert [entry["manager"] for entry in owners] == [labels.FIELD_MANAGER_SCALER]
    await kube.scale(namespace, "d", 0, **decided_on(found))
    assert (await kube.get(DEPLOYMENT, namespace, "d"))["spec"]["replicas"] == 0


@pytest.mark.parametrize("meanwhile", [(7,), (7, 1)], ids=["changed", "changed and changed back"])
async def test_two_scalers_do_not_overwrite_each_other_unseen(
    kube: KubeClient, namespace: str, meanwhile: tuple[int, ...]
) -> None:
    seen = decided_on(await kube.apply(deployment(), namespace=namespace))
    for replicas in meanwhile:
        await kube.patch(DEPLOYMENT, namespace, "d", {"spec": {"replicas": replicas}})
    with pytest.raises(ConflictError):
        await kube.scale(namespace, "d", 3, **seen)
    with pytest.raises(ConflictError):
        await kube.delete(DEPLOYMENT, namespace, "d", **seen)
    assert (await kube.get(DEPLOYMENT, namespace, "d"))["spec"]["replicas"] == meanwhile[-1]


async def test_other_writes_to_the_deployment_are_no_conflict(kube: KubeClient, namespace: str) -> None:
    seen = decided_on(await kube.apply(deployment(), namespace=namespace))
    await kube.patch(DEPLOYMENT, namespace, "d", {"metadata": {"labels": {"write": "1"}}})
    await kube.scale(namespace, "d", 3, **seen)
    found = await kube.get(DEPLOYMENT, namespace, "d")
    assert found["spec"]["replicas"] == 3
    await kube.patch(DEPLOYMENT, namespace, "d", {"metadata": {"labels": {"write": "2"}}})
    await kube.delete(DEPLOYMENT, namespace, "d", **decided_on(found))
    with pytest.raises(NotFoundError):
        await kube.get(DEPLOYMENT, namespace, "d")


async def test_an_apply_is_refused_where_the_object_is_not_as_it_was_seen(kube: KubeClient, namespace: str) -> None:
    def service(port: int) -> Object:
        return manifest("v1", "Service", "s", spec={"ports": [{"port": port}]})

    with pytest.raises(ConflictError):
        await kube.apply(service(1), namespace=namespace, uid="00000000-0000-0000-0000-000000000000", version="5")
    first = (await kube.apply(service(1), namespace=namespace, version=ABSENT))["metadata"]
    with pytest.raises(ConflictError):
        await kube.apply(service(2), namespace=namespace, version=ABSENT)
    seen = {"uid": first["uid"], "version": first["resourceVersion"]}
    await kube.apply(service(3), namespace=namespace, **seen)
    with pytest.raises(ConflictError):
        await kube.apply(service(4), namespace=namespace, **seen)
    assert (await kube.get(SERVICE, namespace, "s"))["spec"]["ports"][0]["port"] == 3


async def test_the_log_of_a_pod_that_is_gone_is_empty(kube: KubeClient, namespace: str) -> None:
    assert await kube.logs(namespace, "gone", "c", tail=5, deadline=5) == ""


async def test_an_apiserver_that_is_away(control_plane: Path, unused_tcp_port: int) -> None:
    configuration = await load_configuration(str(control_plane))
    configuration.host = f"https://127.0.0.1:{unused_tcp_port}"
    async with KubeClient(configuration) as away:
        with pytest.raises(TransientError, match="ClientConnectorError"):
            await away.get(CONFIG_MAP, "default", "a")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def subject(models: Models) -> Subject:
    found = await models.create(model())
    return Subject(models.namespace, "minilm", found["metadata"]["uid"])


async def told(kube: KubeClient, subject: Subject) -> list[Object]:
    """Events of ours: controllers have their own about the claims."""
    found = await kube.list_all(EVENT, subject.namespace)
    return [event for event in found if event["reportingComponent"] == CONTROLLER]


async def test_repeats_of_an_event_are_one_object_and_few_calls(kube: KubeClient, subject: Subject) -> None:
    clock = Clock()
    recorder = EventRecorder(kube, "test", clock)
    assert [await recorder.record(subject, BUILT) for _ in range(4)] == [True, False, False, False]
    clock.now += SERIES_INTERVAL
    assert await recorder.record(subject, BUILT) is True
    (event,) = await told(kube, subject)
    assert event["count"] == 5
    assert (event["message"], event["reason"], event["type"]) == (BUILT.note, "Built", "Normal")
    assert event["involvedObject"]["uid"] == subject.uid
    assert event["firstTimestamp"] <= event["lastTimestamp"]


async def test_events_of_one_second_stand_in_the_order_of_the_way(kube: KubeClient, subject: Subject) -> None:
    """As kubectl lists what has the same ``lastTimestamp``: by name."""
    way = {"Serve": "Serving", "Verify": "Verified", "Resolve": "Resolved", "Scale": "Scaling", "Build": "Built"}
    for action, reason in way.items():
        assert await EventRecorder(kube, "test").record(
            subject, Event(type="Normal", reason=reason, action=action, note=f"{reason}."))
    assert set(way) <= set(ACTIONS.values())
    said = [event["reason"] for event in sorted(await told(kube, subject), key=lambda one: one["metadata"]["name"])]
    assert said == ["Resolved", "Built", "Verified", "Serving", "Scaling"]


async def test_a_restarted_operator_finds_its_own_events(kube: KubeClient, subject: Subject) -> None:
    for _ in range(3):
        assert await EventRecorder(kube, "test").record(subject, BUILT) is True
    (event,) = await told(kube, subject)
    assert event["count"] == 3


async def test_an_event_that_expired_is_told_anew(kube: KubeClient, subject: Subject) -> None:
    clock = Clock()
    recorder = EventRecorder(kube, "test", clock)
    await recorder.record(subject, BUILT)
    await kube.delete(EVENT, subject.namespace, event_name(subject, BUILT))
    clock.now += SERIES_INTERVAL
    assert await recorder.record(subject, BUILT) is True
    assert len(await told(kube, subject)) == 1


async def test_one_object_cannot_flood_the_apiserver(kube: KubeClient, subject: Subject) -> None:
    clock = Clock()
    recorder = EventRecorder(kube, "test", clock)

    async def tell(number: int) -> bool:
        return await recorder.record(subject, Event(type="Normal", reason="Scaling", action="Scale", note=str(number)))

    sent = [await tell(number) for number in range(int(BURST) + 10)]
    assert sum(sent) == BURST
    clock.now += 60
    assert [await tell(100), await tell(101), await tell(102)] == [True, True, False]


async def test_a_long_note_is_cut_between_characters(kube: KubeClient, subject: Subject) -> None:
    long = Event(type="Warning", reason="BuildFailed", action="Build", note="ü" * 2000)
    assert await EventRecorder(kube, "test").record(subject, long) is True
    (event,) = await told(kube, subject)
    assert event["message"].endswith("ü…")
