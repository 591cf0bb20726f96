"""Children without an owner are taken back before anything else is decided."""

from __future__ import annotations

from dataclasses import replace

from enginewright.core.decide import decide
from enginewright.core.decide.orphans import SOON
from enginewright.core.observed import Orphan, Version
from enginewright.core.plan import Delete, ReleaseBuild, Replace
from support.cluster import SPEC, Cluster

DEPLOYMENT = Orphan("apps/v1", "Deployment", "minilm-old", Version("d1", "7"))
JOB = Orphan("batch/v1", "Job", "minilm-build-old", Version("j1", "8"))
LEASE = Orphan("coordination.k8s.io/v1", "Lease", "engine-old-1", Version("l1", "9"))


def cluster() -> Cluster:
    found = Cluster(spec=SPEC)
    found.settle()
    return found


def test_a_deployment_gets_its_owner_and_a_job_and_a_lease_go() -> None:
    here = cluster()
    plan = decide(here.view(), replace(here.observe(), orphans=(DEPLOYMENT, JOB, LEASE)), here.config)
    taken, gone, released = plan.actions
    assert isinstance(taken, Replace)
    assert taken.version == "7"
    assert taken.manifest["metadata"]["name"] == "minilm-old"
    (owner,) = taken.manifest["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (here.view().uid, True)
    assert isinstance(gone, Delete)
    assert (gone.kind, gone.name, gone.uid, gone.version) == ("Job", "minilm-build-old", "j1", "8")
    assert isinstance(released, ReleaseBuild)
    assert (released.name, released.version) == ("engine-old-1", "9")
    assert plan.status == here.view().status
    assert plan.requeue_after == SOON


def test_without_orphans_nothing_is_taken_back() -> None:
    here = cluster()
    assert not any(isinstance(action, Replace) for action in decide(here.view(), here.observe(), here.config).actions)


def test_an_object_that_goes_takes_nothing_back() -> None:
    here = cluster()
    going = replace(here.view(), deleting=True)
    assert decide(going, replace(here.observe(), orphans=(DEPLOYMENT,)), here.config).actions == ()
