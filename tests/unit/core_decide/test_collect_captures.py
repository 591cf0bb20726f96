"""The operator removes captured requests: expired ones every few hours, all of a model that captures no more."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core import labels
from enginewright.core.collect_captures import SETTLE, SWEEP, CaptureReferences, CapturesJob, collect_captures
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests.captures import capture_mark, capture_record
from enginewright.core.observed import CaptureMark
from enginewright.core.plan import Action, Create, Delete, MarkRecord
from support.cluster import START

CONFIG = OperatorConfig()
STORE = "pvc://store/a"
PLACE = ("net", STORE)
MINUTE = timedelta(minutes=1)


def record(*, since: timedelta | None = None, swept: timedelta = timedelta(0)) -> CaptureMark:
    """Both before START."""
    return CaptureMark(name="captures-net", version="1", model="net", store_uri=STORE, claim_uid="c",
                       swept=START - swept, unreferenced=None if since is None else START - since)


def job(*, everything: bool, live: bool = True, succeeded: bool = False) -> CapturesJob:
    return CapturesJob(name="job", uid="u", place=PLACE, everything=everything, live=live, succeeded=succeeded)


def seen(*records: CaptureMark, capturing: bool = True, **fields: Any) -> CaptureReferences:
    return CaptureReferences(**{"namespace": "prod", "now": START, "records": records,
                                "capturing": frozenset({PLACE} if capturing else ()), **fields})


def told(actions: tuple[Action, ...]) -> list[str]:
    found = []
    for action in actions:
        match action:
            case MarkRecord(annotation=labels.CAPTURES_SWEPT):
                found.append("swept")
            case MarkRecord(since=since):
                found.append("mark" if since else "clear")
            case Create(manifest={"kind": "Job"} as manifest):
                (container,) = manifest["spec"]["template"]["spec"]["containers"]
                found.append("all" if "--all" in container["args"] else "expired")
            case Create(manifest=manifest):
                found.append(f"record {manifest['metadata']['annotations'][labels.CAPTURES_OF]}")
            case Delete(kind=kind):
                found.append(f"delete {kind}")
    return found


@pytest.mark.parametrize(("found", "expected"), [
    (seen(record()), []),
    (seen(record(swept=SWEEP)), ["expired"]),
    (seen(record(swept=SWEEP), jobs=(job(everything=False),)), []),
    (seen(record(swept=SWEEP), jobs=(job(everything=False, live=False, succeeded=True),)), ["swept", "delete Job"]),
    (seen(record(swept=SWEEP), jobs=(job(everything=False, live=False),)), ["delete Job"]),
    (seen(record(), capturing=False), ["mark"]),
    (seen(record(since=MINUTE), capturing=False), []),
    (seen(record(since=MINUTE)), ["clear"]),
    (seen(record(since=SETTLE, swept=SWEEP), capturing=False), ["all"]),
    (seen(record(since=SETTLE), capturing=False, jobs=(job(everything=True),)), []),
    (seen(record(since=SETTLE), capturing=False, jobs=(job(everything=True, live=False, succeeded=True),)),
     ["delete ConfigMap", "delete Job"]),
    (seen(record(since=SETTLE), capturing=False, jobs=(job(everything=True, live=False),)), ["delete Job"]),
    (seen(record(since=SETTLE), jobs=(job(everything=True, live=False, succeeded=True),)), ["delete Job", "clear"]),
    (seen(record(since=SETTLE), capturing=False, jobs=(job(everything=False, live=False, succeeded=True),)),
     ["swept", "delete Job"]),
    (seen(claims={STORE: "c"}), ["record net"]),
    (seen(), []),
], ids=["nothing to do", "time to look for expired ones", "a Job does", "it has", "it failed", "nobody captures",
        "a pod may end yet", "captured again", "all go", "they are going", "they are gone", "they are not",
        "captured again meanwhile", "of expired ones alone", "a record that went too early", "a store unheard of"])
def test_one_step_at_a_time(found: CaptureReferences, expected: list[str]) -> None:
    assert told(collect_captures(found, CONFIG)) == expected


def test_also_where_engines_are_not_collected() -> None:
    """That keeps engines of others; captures are of this operator's own objects."""
    found = seen(record(since=SETTLE), capturing=False)
    assert told(collect_captures(found, OperatorConfig(collect_engines=False))) == ["all"]


def test_a_job_sees_the_store_and_names_one_model() -> None:
    (action,) = collect_captures(seen(record(since=SETTLE), capturing=False), CONFIG)
    assert isinstance(action, Create)
    meta, spec = action.manifest["metadata"], action.manifest["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["args"] == ["captures", "--store", "/store/a", "--all", "--of", "prod/net"]
    assert meta["ownerReferences"][0]["kind"] == "PersistentVolumeClaim"
    assert meta["labels"][labels.STEP] == "captures"
    assert (meta["annotations"][labels.CAPTURES_OF], meta["annotations"][labels.STORE_URI]) == PLACE


def test_a_record_says_where_captures_lie() -> None:
    made = capture_record("prod", "c", STORE, "net")
    there = {**made, "metadata": {**made["metadata"], "resourceVersion": "7", "creationTimestamp":
                                  "2026-01-01T00:00:00Z"}}
    mark = capture_mark(there)
    assert mark is not None
    assert (mark.place, mark.claim_uid, mark.version, mark.unreferenced) == (PLACE, "c", "7", None)
    assert mark.swept.year == 2026
    assert "labels" in made["metadata"]
    assert labels.MODEL not in made["metadata"]["labels"], "it is no child of the object, and outlives it"


@pytest.mark.parametrize("broken", [
    {}, {"metadata": {}}, {"metadata": {"annotations": {labels.CAPTURES_OF: "net", labels.STORE_URI: "s3://b"}}},
    {"metadata": {"annotations": {labels.CAPTURES_OF: "net", labels.STORE_URI: STORE}, "ownerReferences": []}},
])
def test_a_config_map_that_says_nothing_is_left_alone(broken: dict[str, Any]) -> None:
    assert capture_mark(broken) is None


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=12))
def test_captures_go_only_after_nobody_captured_for_long_enough(rounds: list[tuple[bool, bool, bool]]) -> None:
    """A Job that removes all starts only after two rounds without captures, and the record stays until such a Job has
    ended well. This holds whatever the spec asks for in each round, and however Jobs end."""
    mark, jobs, now, quiet = record(), tuple[CapturesJob, ...](), START, 0
    for capturing, ends, well in rounds:
        now += SETTLE
        jobs = tuple(job(everything=one.everything, live=False, succeeded=well) if ends else one for one in jobs)
        removed = any(one.everything and one.succeeded for one in jobs)
        quiet = 0 if capturing else quiet + 1
        for action in collect_captures(seen(mark, capturing=capturing, jobs=jobs, now=now), CONFIG):
            match action:
                case MarkRecord(annotation="", since=since):
                    mark = CaptureMark(**{**vars(mark), "unreferenced": since})
                case MarkRecord(since=swept) if swept:
                    mark = CaptureMark(**{**vars(mark), "swept": swept})
                case Create(manifest=manifest):
                    everything = labels.CAPTURES_GO in manifest["metadata"]["annotations"]
                    assert not (everything and quiet < 2)
                    jobs = (job(everything=everything),)
                case Delete(kind="Job"):
                    jobs = ()
                case Delete(kind="ConfigMap"):
                    assert removed
                    assert not capturing
                    return
