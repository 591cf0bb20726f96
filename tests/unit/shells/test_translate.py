"""Events to keys."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.clients.resources import JOB, OPTIMISED_MODEL
from enginewright.core import labels
from enginewright.handlers.translate import Translator
from enginewright.handlers.watch import _watched
from enginewright.observe.keys import Key
from enginewright.reconcile.known import Known, Needs

M = Key("ns", "m")


def body(
    name: str = "x", found: dict[str, str] | None = None, owners: tuple[tuple[str, str], ...] = ()
) -> dict[str, Any]:
    references = [{"kind": kind, "name": owner} for kind, owner in owners]
    return {"metadata": {"name": name, "namespace": "ns", "labels": found or {}, "ownerReferences": references}}


@pytest.fixture
def known() -> Known:
    known = Known()
    known.remember(M, Needs(frozenset({"models", "store"}), "f" * 32))
    known.remember(Key("ns", "n"), Needs(frozenset({"store"}), "e" * 32))
    known.remember(Key("other", "m"), Needs(frozenset({"store"}), "f" * 32))
    return known


def test_the_object_itself(known: Known) -> None:
    assert list(Translator(known).itself(body("m"))) == [M]


def test_an_object_whose_spec_has_not_been_looked_at_is_asked_for(known: Known) -> None:
    translator = Translator(known)
    new = {"metadata": {"name": "m", "namespace": "ns", "generation": 2}}
    assert translator.asked(OPTIMISED_MODEL, new)
    assert translator.asked(OPTIMISED_MODEL, {**new, "status": {"observedGeneration": 1}})
    assert not translator.asked(OPTIMISED_MODEL, {**new, "status": {"observedGeneration": 2}})
    assert not translator.asked(JOB, new)


def test_an_object_of_a_class_is_news_for_its_fleet(known: Known) -> None:
    assert list(Translator(known).itself(body("m-cpu", owners=((labels.KIND, "m"),)))) == [Key("ns", "m-cpu"), M]
    assert list(Translator(known).itself(body("m", owners=(("Application", "theirs"),)))) == [M]


def test_a_child_by_its_owner_before_its_label(known: Known) -> None:
    translator = Translator(known)
    assert list(translator.child(body(owners=((labels.KIND, "m"),), found={labels.MODEL: "other"}))) == [M]
    assert list(translator.child(body(owners=(("ReplicaSet", "rs"),), found={labels.MODEL: "m"}))) == [M]
    assert list(translator.child(body())) == []
    assert list(translator.child({"metadata": {"name": "x", "namespace": "ns"}})) == []


def test_an_engine_record_is_news_for_all_of_its_namespace_that_want_the_engine(known: Known) -> None:
    record = body(found={labels.ENGINE: "true", labels.FINGERPRINT: "f" * 32, labels.MODEL: "whoever"})
    assert list(Translator(known).config_map(record)) == [M]
    assert list(Translator(known).config_map(body(found={labels.MODEL: "m"}))) == [M]


def test_a_claim_wakes_all_that_name_it(known: Known) -> None:
    assert sorted(Translator(known).claim(body("store"))) == [M, Key("ns", "n")]
    assert list(Translator(known).claim(body("unrelated"))) == []


def test_a_job_that_others_wait_for_wakes_them_and_its_own_object(known: Known) -> None:
    known.remember(Key("ns", "n"), Needs(job="asks"))
    known.remember(Key("other", "m"), Needs(job="asks"))
    asks = body("asks", owners=((labels.KIND, "m"),))
    assert list(Translator(known).keys(JOB, asks)) == [M, Key("ns", "n")]
    assert list(Translator(known).keys(JOB, body("builds", owners=((labels.KIND, "m"),)))) == [M]
    known.forget(Key("ns", "n"))
    assert list(Translator(known).keys(JOB, asks)) == [M]


def test_forgetting(known: Known) -> None:
    known.forget(M)
    known.forget(M)
    assert M not in known
    assert sorted(Translator(known).claim(body("store"))) == [Key("ns", "n")]


names = st.sampled_from("abc")


@given(st.lists(st.tuples(names, st.frozensets(names), names), max_size=20))
def test_the_indices_hold_what_was_remembered_last(steps: list[tuple[str, frozenset[str], str]]) -> None:
    known, model = Known(), dict[Key, Needs]()
    for name, claims, fingerprint in steps:
        key = Key("ns", name)
        if claims:
            model[key] = Needs(claims, fingerprint)
            known.remember(key, model[key])
        else:
            model.pop(key, None)
            known.forget(key)
    assert known.keys() == model.keys()
    for name in "abc":
        assert set(known.of_claim("ns", name)) == {key for key, needs in model.items() if name in needs.claims}
        assert set(known.of_fingerprint("ns", name)) == {key for key, n in model.items() if n.fingerprint == name}


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("watcher for pods.v1@None", "pods@*"),
        ("watcher for optimisedmodels.v1alpha1.enginewright.io@ml", "optimisedmodels@ml"),
        ("poster of events", ""),
    ],
)
def test_names_of_kopfs_watcher_tasks(task: str, expected: str) -> None:
    assert _watched(task) == expected
