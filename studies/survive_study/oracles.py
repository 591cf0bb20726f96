"""What must hold, asked of the world. Each gives an alarm in words for each thing that does not hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from enginewright.clients.kube import Object
from enginewright.clients.resources import DEPLOYMENT, JOB, OPTIMISED_MODEL, POD, SERVICE
from enginewright.core import labels
from enginewright.core.internal import joined
from enginewright.core.reasons import Reason
from enginewright.core.status import RevisionStatus, RolledBackStatus, RolloutStatus, read, read_all
from enginewright.core.way_back import good_ones
from survive_study.world import CHILDREN, World, condition, matches, ready

# Why a model may rest without being ready. What is not here is on its way, or a defect.
NOT_AT_REST = frozenset({"", "OperatorError", "Resolving", "Progressing", "Building", "BuildPending", "Draining",
                         "AskingServerImage", "ResolveRetrying", "BuildRetrying", "WaitingForSource"})


def always(world: World) -> Iterator[str]:
    """At any moment, whatever was done and whichever operator was killed."""
    yield from _one_build(world)
    yield from _only_proven(world)
    yield from _not_ours(world)


def at_rest(world: World) -> Iterator[str]:
    """Once nothing is done to it any more, and the operator has had its time."""
    yield from _said_why(world)
    yield from _ready_is_so(world)
    yield from _none_given_up(world)
    yield from _owned(world)


def _one_build(world: World) -> Iterator[str]:
    """At most one build Job of a fingerprint and a store that has not ended."""
    running: dict[tuple[str, str], list[str]] = defaultdict(list)
    for job in world.ours(JOB):
        notes = job["metadata"].get("annotations") or {}
        built = job["metadata"]["labels"].get(labels.STEP) == labels.COMPONENT_BUILD
        if built and not _ended(job) and not job["metadata"].get("deletionTimestamp"):
            running[notes.get(labels.FINGERPRINT_FULL, ""), notes.get(labels.STORE_URI, "")].append(
                job["metadata"]["name"])
    for (fingerprint, store), names in running.items():
        if len(names) > 1:
            yield f"two builds of {fingerprint[:12]} into {store}: {', '.join(sorted(names))}"


def _ended(job: Object) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(one["type"] in ("Complete", "Failed") and one["status"] == "True" for one in conditions)


def _only_proven(world: World) -> Iterator[str]:
    """What a Service sends requests to was built, and found accurate."""
    for service in world.ours(SERVICE):
        selector = service["spec"].get("selector") or {}
        if selector.get(labels.COMPONENT) != labels.COMPONENT_SERVER:
            continue  # the activator's
        for pod in world[POD]:
            fingerprint = (pod["metadata"].get("annotations") or {}).get(labels.FINGERPRINT_FULL, "")
            if matches(selector, pod) and ready(pod) and fingerprint not in world.proven:
                yield (f"Service {service['metadata']['name']} sends requests to pod {pod['metadata']['name']}, whose "
                       f"engine {fingerprint[:12] or '(none)'} was never proven")


def _not_ours(world: World) -> Iterator[str]:
    """What others made is there as they made it."""
    for plural, wanted in world.foreign.items():
        there = {item["metadata"]["name"]: item for item in world.of.get(plural, ())}
        for name, made in wanted.items():
            if name not in there:
                yield f"{plural}/{name} of another owner is gone"
            elif kept(there[name]) != made:
                yield f"{plural}/{name} of another owner was changed"


def kept(item: Object) -> Object:
    """What its maker alone may change."""
    metadata = item["metadata"]
    return {"uid": metadata["uid"], "labels": metadata.get("labels"), "owners": metadata.get("ownerReferences"),
            "deleted": metadata.get("deletionTimestamp"), "spec": item.get("spec"), "data": item.get("data")}


def _said_why(world: World) -> Iterator[str]:
    for model in world[OPTIMISED_MODEL]:
        name, entry = model["metadata"]["name"], condition(model, "Ready")
        if not entry:
            yield f"{name}: the operator has not spoken of generation {model['metadata']['generation']}"
        elif entry["status"] != "True" and (entry["reason"] in NOT_AT_REST or not entry["message"]):
            yield f"{name}: Ready is {entry['status']} for {entry['reason']}: {entry['message'][:200]}"


def _ready_is_so(world: World) -> Iterator[str]:
    """A model that is ready has its replicas, which answer, behind its Service."""
    for model in world[OPTIMISED_MODEL]:
        if condition(model, "Ready").get("status") != "True":
            continue
        name = model["metadata"]["name"]
        service = next((one for one in world.ours(SERVICE) if one["metadata"]["name"] == name), None)
        if service is None:
            yield f"{name}: Ready is True, and there is no Service"
            continue
        selector = service["spec"].get("selector") or {}
        wanted = _wanted(world, model, selector)
        behind = [pod for pod in world[POD] if matches(selector, pod) and ready(pod)]
        for pod in behind:
            if not _of_the_model(world, model, pod):
                yield f"{name}: requests go to pod {pod['metadata']['name']}, which is of no Deployment of its own"
        if len(behind) < wanted:
            yield f"{name}: Ready is True with {len(behind)} of {wanted} replicas behind its Service"


def _of_the_model(world: World, model: Object, pod: Object) -> bool:
    """Whether the Deployment of the pod's revision belongs to the model that there is now."""
    revision = (pod["metadata"].get("labels") or {}).get(labels.REVISION)
    uid = model["metadata"]["uid"]
    return any((one["metadata"].get("labels") or {}).get(labels.REVISION) == revision
               and uid in [owner["uid"] for owner in one["metadata"].get("ownerReferences") or ()]
               for one in world.ours(DEPLOYMENT))


def _wanted(world: World, model: Object, selector: Mapping[str, str]) -> int:
    """The fewest that the spec allows. Replicas stay as they are, and are one at least, where nothing says what they
    cost; also of a suspended model, which has those of the Deployments that ``selector`` is of."""
    scaling = model["spec"].get("autoscaling")
    fewest = int(scaling.get("minReplicas", 1) if scaling else model["spec"].get("replicas", 1))
    reason = condition(model, "ScalingActive").get("reason")
    if reason == Reason.PRICE_UNKNOWN:
        return 1
    if reason == Reason.SUSPENDED:
        left = sum(int(one["spec"]["replicas"]) for one in world.ours(DEPLOYMENT)
                   if matches(selector, one["spec"]["template"]))
        return max(left, min(1, fewest))
    return fewest


def _none_given_up(world: World) -> Iterator[str]:
    """No request goes to a revision that was given up, where there is another to go back to. One that drifted may
    serve: it is better than none."""
    for model in world[OPTIMISED_MODEL]:
        given_up = _given_up(model)
        if given_up is None:
            continue
        for service in _behind(world, model):
            for pod in world[POD]:
                marks = pod["metadata"].get("labels") or {}
                if (matches(service["spec"]["selector"], pod) and ready(pod)
                        and marks.get(labels.REVISION) == given_up.revision):
                    yield (f"{model['metadata']['name']}: Service {service['metadata']['name']} sends requests to pod "
                           f"{pod['metadata']['name']} of revision {given_up.revision}, which was given up: "
                           f"{given_up.message[:200]}")


def _given_up(model: Object) -> RolledBackStatus | None:
    """Unless the user asked for another try, or nothing else has ever served."""
    status = joined(model.get("status") or {})
    rollout, revisions = read(RolloutStatus, status.get("rollout")), read_all(RevisionStatus, status.get("revisions"))
    found = rollout.rolled_back if rollout else None
    if found is None or found.reason == Reason.QUALITY_DRIFTED or not good_ones(revisions, found.revision):
        return None
    retry = (model["metadata"].get("annotations") or {}).get(labels.RETRY, "")
    return found if found.retry in (None, retry) else None


def _behind(world: World, model: Object) -> Iterator[Object]:
    """The model's Services that send requests to its replicas."""
    for service in world.ours(SERVICE):
        selector = service["spec"].get("selector") or {}
        if (selector.get(labels.MODEL) == model["metadata"]["name"]
                and selector.get(labels.COMPONENT) == labels.COMPONENT_SERVER):
            yield service


def _owned(world: World) -> Iterator[str]:
    """Every child has a controller that is there. Records of engines belong to their store instead, and leases of
    leaders to no object."""
    uids = {model["metadata"]["uid"] for model in world[OPTIMISED_MODEL]}
    for resource in CHILDREN:
        for item in world.ours(resource):
            marks = item["metadata"].get("labels") or {}
            if labels.MODEL not in marks or item["metadata"].get("deletionTimestamp"):
                continue
            owners = {owner["uid"] for owner in item["metadata"].get("ownerReferences") or ()}
            if not owners & uids:
                yield f"{resource.plural}/{item['metadata']['name']} has no owner that is there"


def repelled(world: World) -> bool:
    """Whether Kubernetes refuses what the operator has to write: it tries that again whenever something happens."""
    return any(condition(model, "Ready").get("reason") == "ApiRefused" for model in world[OPTIMISED_MODEL])


def healthy(world: World) -> Iterator[str]:
    """Once every spec is the basis again and all that failed is tried again."""
    for name, entry in unwell(world):
        yield (f"{name}: healed, and Ready is {entry.get('status')} for {entry.get('reason')}: "
               f"{str(entry.get('message'))[:200]}")


def unwell(world: World) -> Iterator[tuple[str, Object]]:
    """Models that are not ready, each with that condition."""
    for model in world[OPTIMISED_MODEL]:
        if (entry := condition(model, "Ready")).get("status") != "True":
            yield model["metadata"]["name"], entry
