"""What is remembered of revisions, and going back to one of them."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from enginewright.core import labels
from enginewright.core.collect import named
from enginewright.core.config import Images, OperatorConfig
from enginewright.core.decide.target.pinned import _served_key
from enginewright.core.manifests import read_revision, revision_configmap
from enginewright.core.plan import Apply, Create
from enginewright.core.spec import BatchingSpec, Spec
from support.children import children_of
from support.cluster import SPEC, Cluster, built, described, writes_of
from support.once import once

OLD: dict[str, Any] = {"engine": {"maxBatchSize": 16}}
CRASH = {"phase": "Running", "restarts": 3, "exit_code": 1, "failed_container": "server", "terminated_reason": "Error"}


@once
def served(*sizes: int, **spec: Any) -> tuple[Cluster, list[str]]:
    """A cluster that has served an engine of each batch size, one after the other; and their revisions."""
    cluster = Cluster(spec={**SPEC, "engine": {"maxBatchSize": sizes[0]}, **spec})
    revisions: list[str] = []
    for size in sizes:
        if revisions:
            cluster.edit(engine={"maxBatchSize": size})
        cluster.settle()
        assert cluster.says("Ready") == "True/Serving"
        revisions.append(cluster.revision)
    return cluster, revisions


def history(cluster: Cluster) -> list[tuple[str, str]]:
    return [(entry["revision"], entry["outcome"]) for entry in cluster.status["revisions"]]


def pin(cluster: Cluster, revision: str) -> None:
    cluster.annotations[labels.ROLLBACK_TO] = revision


class TestHistory:
    def test_what_serves_is_the_first_entry_with_its_evidence(self) -> None:
        cluster, (revision,) = served(8)
        (entry,) = cluster.status["revisions"]
        assert entry == {
            "revision": revision, "fingerprint": cluster.status["fingerprint"], "backend": "onnxruntime",
            "precision": "int8", "speedup": 2.2, "p99Milliseconds": 9.0, "accuracyLow": 0.995, "outcome": "Serving",
            "promotionTime": entry["promotionTime"], "target": entry["target"]}
        assert entry["target"]["device"] == "cpu amd64"
        assert set(cluster.kept) == {revision}

    def test_figures_have_the_digits_of_status_engine(self) -> None:
        """What a clock measures has fifteen, of which ten are noise."""
        cluster, _ = served(8)
        cluster.edit(engine={"maxBatchSize": 16})
        cluster.operate()
        cluster.finish(built(built_at=cluster.now, p99_ms=9.012345678901234), of="build")
        cluster.settle()
        entry, engine = cluster.status["revisions"][0], cluster.status["engine"]
        assert entry["p99Milliseconds"] == engine["p99Milliseconds"] == 9.0123

    def test_newest_first_and_old_ones_superseded(self) -> None:
        cluster, (one, two, three) = served(8, 16, 32)
        assert history(cluster) == [(three, "Serving"), (two, "Superseded"), (one, "Superseded")]
        assert all("endTime" in entry for entry in cluster.status["revisions"][1:])
        assert set(cluster.kept) == {one, two, three}

    @pytest.mark.parametrize(("limit", "left"), [(0, 1), (1, 2), (2, 3), (9, 3)])
    def test_the_limit_counts_old_ones_and_takes_what_was_kept_along(self, limit: int, left: int) -> None:
        cluster, revisions = served(8, 16, 32, revisionHistoryLimit=limit)
        wanted = revisions[::-1][:left]
        assert [revision for revision, _ in history(cluster)] == wanted
        assert set(cluster.kept) == set(wanted)

    def test_a_smaller_limit_holds_at_once(self) -> None:
        cluster, (_, two, three) = served(8, 16, 32)
        cluster.edit(revisionHistoryLimit=1)
        cluster.settle()
        assert set(cluster.kept) == {two, three}
        assert not cluster.operate().actions

    def test_what_was_rolled_back_is_told_and_not_kept(self) -> None:
        cluster, (one,) = served(8)
        fail(cluster, OLD)
        new = cluster.status["rollout"]["rolledBack"]["revision"]
        assert history(cluster) == [(new, "RolledBack"), (one, "Serving")]
        told = cluster.status["revisions"][0]
        assert (told["reason"], "promotionTime" in told) == ("Crashing", False)
        assert "3 times" in told["message"]
        assert set(cluster.kept) == {one}

    @pytest.mark.parametrize("limit", [1, 2])
    def test_failed_tries_leave_what_can_be_gone_back_to(self, limit: int) -> None:
        cluster, (one, two) = served(8, 16, revisionHistoryLimit=limit)
        for size in (24, 32, 48):
            fail(cluster, {"engine": {"maxBatchSize": size}})
        assert (one, "Superseded") in history(cluster)
        assert set(cluster.kept) == {one, two}
        # The last try is what the spec asks for.
        assert [outcome for _, outcome in history(cluster)].count("RolledBack") == limit

    def test_a_lost_status_is_begun_anew(self) -> None:
        cluster, (_, two) = served(8, 16)
        cluster.status = {}
        cluster.settle()
        assert history(cluster) == [(two, "Serving")]

    def test_going_back_by_the_spec_serves_the_old_entry_again(self) -> None:
        cluster, (one, two) = served(8, 16)
        cluster.edit(engine={"maxBatchSize": 8})
        cluster.settle()
        assert history(cluster) == [(one, "Serving"), (two, "Superseded")]

    def test_engines_of_what_served_are_not_collected(self) -> None:
        cluster, _ = served(8, 16)
        fail(cluster, {"engine": {"maxBatchSize": 32}})
        failed = cluster.status["revisions"][0]["fingerprint"]
        kept = {entry["fingerprint"] for entry in cluster.status["revisions"][1:]}
        assert len(kept) == 2
        assert named(cluster.status) >= kept
        assert failed not in named({**cluster.status, "fingerprint": "", "build": {}})

    @pytest.mark.parametrize("status", [{}, {"revisions": "x"}, {"revisions": [1, {}]},
                                        {"engine": 3, "fingerprint": ""}])
    def test_a_status_of_nonsense_names_no_engine(self, status: dict[str, Any]) -> None:
        assert named(status) == set()


def fail(cluster: Cluster, edit: dict[str, Any]) -> None:
    """A new spec whose revision crashes."""
    old = set(cluster.replicas())
    cluster.edit(**edit)
    cluster.operate()
    cluster.finish(built(built_at=cluster.now), of="build")
    cluster.operate()
    (new,) = set(cluster.replicas()) - old
    cluster.broken[new] = CRASH
    cluster.settle()
    assert cluster.says("RolloutComplete") == "False/RolledBack"


class TestGoingBack:
    def test_who_asks_to_go_back_need_not_ask_again_to_promote(self) -> None:
        cluster, (one, two) = served(8, 16)
        cluster.edit(rollout={"analysis": {"seconds": 0}, "autoPromote": False})
        cluster.settle()
        assert cluster.revision == two
        pin(cluster, one)
        cluster.settle()
        assert cluster.revision == one

    def test_by_the_same_rollout_without_a_build(self) -> None:
        cluster, (one, two) = served(8, 16)
        before = dict(cluster.jobs)
        pin(cluster, one)
        seen = set()
        for _ in range(200):
            cluster.step()
            seen.add(cluster.says("RolloutComplete"))
        assert {"False/Progressing", "False/Analysing"} <= seen
        assert cluster.jobs == before
        assert cluster.replicas() == {one: 1}
        assert cluster.revision == one
        assert cluster.says("Available") == "True/ServingPrevious"
        assert cluster.says("Ready") == cluster.says("RolloutComplete") == "False/Pinned"
        message = cluster.condition("Ready")["message"]
        for word in (one, two, f"kubectl annotate om minilm {labels.ROLLBACK_TO}- -n prod"):
            assert word in message
        assert history(cluster) == [(one, "Serving"), (two, "Superseded")]

    def test_the_very_same_pods(self) -> None:
        cluster = Cluster(spec={**SPEC, **OLD, "serving": {"podTemplate": {"metadata": {"labels": {"team": "a"}}}}},
                          config=OperatorConfig(images=Images(server="server:1")))
        applied: dict[str, list[Any]] = {}

        def settle() -> None:
            for _ in range(150):
                plan = cluster.step()
                cluster.settle_jobs()
                for action in plan.actions:
                    if isinstance(action, Apply) and action.manifest["kind"] == "Deployment":
                        applied.setdefault(action.manifest["metadata"]["name"], []).append(action.manifest)

        settle()
        one = cluster.revision
        # Another server image, by the installation; another store and template, by the user.
        cluster.config = OperatorConfig(images=Images(server="server:2"))
        cluster.edit(serving=None, store={"uri": "pvc://enginewright-store/b"}, rollout={"strategy": "BlueGreen"})
        settle()
        assert cluster.revision != one
        pin(cluster, one)
        settle()
        assert cluster.revision == one
        first, again = applied[f"minilm-{one}"]
        assert again["spec"]["template"] == first["spec"]["template"]
        assert again["spec"]["template"]["spec"]["containers"][0]["image"] == "server:1"

    def test_released_it_goes_on_with_the_spec(self) -> None:
        cluster, (one, two) = served(8, 16)
        pin(cluster, one)
        cluster.settle()
        cluster.annotations.clear()
        cluster.settle()
        assert cluster.says("Ready") == "True/Serving"
        assert history(cluster) == [(two, "Serving"), (one, "Superseded")]
        assert "pin" not in cluster.status

    def test_the_newest_wish_wins(self) -> None:
        cluster, (one, _) = served(8, 16)
        pin(cluster, one)
        cluster.settle()
        cluster.edit(engine={"maxBatchSize": 32})
        cluster.settle()
        assert cluster.says("Ready") == "True/Serving"
        assert cluster.revision not in (one, "")
        assert "has changed since" in cluster.condition("RolloutComplete")["message"]
        # Nor is it followed again when the spec is put back.
        cluster.edit(engine={"maxBatchSize": 16})
        cluster.settle()
        assert cluster.says("Ready") == "True/Serving"

    @pytest.mark.parametrize("change", [{"replicas": 3}, {"rollout": {"strategy": "BlueGreen"}},
                                        {"revisionHistoryLimit": 0}])
    def test_what_is_no_other_engine_leaves_it_pinned(self, change: dict[str, Any]) -> None:
        cluster, (one, _) = served(8, 16)
        pin(cluster, one)
        cluster.settle()
        cluster.edit(**change)
        cluster.settle()
        assert cluster.says("Ready") == "False/Pinned"
        assert cluster.replicas() == {one: change.get("replicas", 1)}

    def test_an_upgrade_that_makes_another_key_of_the_same_spec_leaves_it_pinned(self) -> None:
        cluster, (one, _) = served(8, 16)
        pin(cluster, one)
        cluster.settle()
        now = cluster.status["pin"]
        cluster.status = {**cluster.status, "pin": {**now, "specKey": "of an old release"}}
        cluster.settle()
        assert cluster.says("Ready") == "False/Pinned"
        assert cluster.replicas() == {one: 1}
        assert cluster.status["pin"] == now, "the key is written anew"
        # From then on a new generation that asks for the same to be served leaves it pinned, and no other.
        cluster.edit(replicas=2)
        cluster.settle()
        assert cluster.says("Ready") == "False/Pinned"
        cluster.edit(engine={"maxBatchSize": 32})
        cluster.settle()
        assert cluster.says("Ready") == "True/Serving"

    def test_a_key_of_an_old_release_says_nothing_of_a_spec_that_was_written_meanwhile(self) -> None:
        cluster, (one, _) = served(8, 16)
        pin(cluster, one)
        cluster.settle()
        cluster.status = {**cluster.status, "pin": {**cluster.status["pin"], "specKey": "of an old release"}}
        cluster.edit(engine={"maxBatchSize": 32})
        cluster.settle()
        assert cluster.says("Ready") == "True/Serving"
        assert cluster.status["pin"]["released"] is True

    def test_a_changed_spec_that_was_refused_at_first_ends_it(self) -> None:
        """A refusal has seen the new generation, and held nothing against the pin."""
        cluster, (one, two) = served(8, 16)
        pin(cluster, one)
        cluster.settle()
        cluster.edit(engine={"maxBatchSize": 32})
        spec, cluster.spec = cluster.spec, {**cluster.spec, "no": "such field"}
        cluster.operate()
        assert cluster.says("Ready") == "False/InvalidSpec"
        # Another release knows the field: same generation.
        cluster.spec = spec
        cluster.settle()
        assert cluster.says("Ready") == "True/Serving"
        assert cluster.revision not in (one, two)

    def test_while_the_specs_own_engine_cannot_be_built(self) -> None:
        cluster, (one, two) = served(8, 16)
        cluster.edit(engine={"maxBatchSize": 32})
        cluster.operate()
        pin(cluster, one)
        for _ in range(150):
            cluster.step()
        assert cluster.replicas() == {one: 1}
        assert cluster.says("RolloutComplete") == "False/Pinned"
        assert cluster.says("Ready") == "False/BuildPending"
        assert two in dict(history(cluster))

    def test_one_that_fails_is_given_up_for_what_serves(self) -> None:
        cluster, (one, two) = served(8, 16)
        cluster.broken[one] = CRASH
        pin(cluster, one)
        cluster.settle()
        assert cluster.replicas() == {two: 1}
        told = cluster.condition("RolloutComplete")
        assert told["reason"] == "RolledBack"
        assert one in told["message"]
        assert history(cluster) == [(one, "RolledBack"), (two, "Serving")]
        assert one in cluster.kept, "it served before"

    def test_the_specs_own_revision_is_no_pin(self) -> None:
        cluster, (_, two) = served(8, 16)
        pin(cluster, two)
        cluster.settle()
        assert cluster.says("Ready") == "True/Serving"

    @pytest.mark.parametrize("wish", ["12345678", "", "no such thing"])
    def test_an_unknown_one_changes_nothing(self, wish: str) -> None:
        cluster, (one, two) = served(8, 16)
        pin(cluster, wish)
        plan = cluster.operate()
        assert described(plan) == []
        if not wish:
            assert cluster.says("Ready") == "True/Serving"
            return
        told = cluster.condition("RolloutComplete")
        assert (told["status"], told["reason"]) == ("False", "RollbackTargetUnknown")
        for word in (f"{labels.ROLLBACK_TO}={wish}", f"kept are {two}, {one}"):
            assert word in told["message"]
        assert cluster.replicas() == {two: 1}

    def test_one_whose_configmap_somebody_removed(self) -> None:
        cluster, (one, two) = served(8, 16)
        del cluster.kept[one]
        pin(cluster, one)
        assert described(cluster.operate()) == []
        told = cluster.condition("RolloutComplete")
        assert (told["status"], told["reason"]) == ("False", "RollbackTargetUnknown")
        assert f"revision {one} cannot be made again: ConfigMap minilm-{one} is gone" in told["message"]
        assert f"kept are {two}. " in told["message"]

    def test_one_that_left_the_history(self) -> None:
        cluster, (one, two, three) = served(8, 16, 32, revisionHistoryLimit=1)
        pin(cluster, one)
        assert described(cluster.operate()) == []
        assert f"kept are {three}, {two}" in cluster.condition("RolloutComplete")["message"]

    def test_one_that_never_served(self) -> None:
        cluster, (one,) = served(8)
        fail(cluster, OLD)
        new = history(cluster)[0][0]
        cluster.edit(engine={"maxBatchSize": 8})
        cluster.settle()
        pin(cluster, new)
        cluster.operate()
        message = cluster.condition("RolloutComplete")["message"]
        assert f"revision {new} never served: it was rolled back (Crashing); kept are {one}" in message

    def test_one_that_this_release_would_make_otherwise(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cluster, (one, _) = served(8, 16)
        # The package's name of the module is its function's.
        monkeypatch.setattr(sys.modules["enginewright.core.manifests.deployment"], "REVISION_VERSION", 99)
        pin(cluster, one)
        cluster.operate()
        assert "was made by another release" in cluster.condition("RolloutComplete")["message"]


class NextBatching(BatchingSpec):
    newer: bool = False


class NextSpec(Spec):
    """Of a release that brings fields with defaults."""

    batching: NextBatching = NextBatching()
    newest: int = 3


class TestServedKey:
    @pytest.mark.parametrize("spec", [SPEC, {**SPEC, "batching": {"preferredBatchSizes": [4]}}])
    @pytest.mark.parametrize("filled", [{}, {"newest": 3}])
    def test_a_field_with_a_default_leaves_it_alone(self, spec: dict[str, Any], filled: dict[str, Any]) -> None:
        """``filled`` is what the apiserver writes into objects that are there."""
        coming = NextSpec.model_validate({**spec, **filled})
        assert _served_key(coming) == _served_key(Spec.model_validate(spec))

    @pytest.mark.parametrize("change", [{"newest": 4}, {"batching": {"newer": True}}, OLD])
    def test_what_was_written_is_another(self, change: dict[str, Any]) -> None:
        assert _served_key(NextSpec.model_validate({**SPEC, **change})) != _served_key(NextSpec.model_validate(SPEC))


def test_what_is_kept_is_read_as_it_was_written() -> None:
    cluster, _ = served(8)
    (kept,) = cluster.kept.values()
    manifest = revision_configmap(children_of("m", dict(SPEC)).owner, kept)
    assert read_revision(manifest) == kept
    assert manifest["immutable"] is True


@pytest.mark.parametrize("file", ["spec.json", "placement.json", "outcome.json"])
def test_what_is_no_kept_revision(file: str) -> None:
    cluster, _ = served(8)
    (kept,) = cluster.kept.values()
    manifest = revision_configmap(children_of("m", dict(SPEC)).owner, kept)
    assert read_revision({**manifest, "data": {**manifest["data"], file: "{"}}) is None
    assert read_revision({**manifest, "metadata": {}}) is None
    assert read_revision({}) is None


def test_the_revision_is_kept_before_status_says_so() -> None:
    """An operator that is killed between the two keeps it again, at no cost."""
    cluster = Cluster(spec=dict(SPEC))
    while not any(isinstance(action, Create) and read_revision(action.manifest) for action in cluster.plan().actions):
        cluster.move(5)
    cluster.operate(writes=len(list(writes_of(cluster.plan(), cluster.status))) - 1)
    assert cluster.kept
    assert not cluster.status.get("revisions")
    cluster.settle()
    assert history(cluster) == [(cluster.revision, "Serving")]


def test_an_engine_is_built_anew_on_demand_while_the_old_one_serves() -> None:
    cluster, (one,) = served(8)
    before = cluster.status["fingerprint"]
    cluster.annotations[labels.REBUILD] = "2026-11-22"
    cluster.operate()
    assert len(cluster.running("build")) == 1
    assert cluster.condition("Available")["status"] == "True"
    cluster.settle()
    again = cluster.status["fingerprint"]
    assert again != before
    assert cluster.status["rollout"]["stable"] != one
    cluster.settle()
    assert cluster.running("build") == []
    assert cluster.status["fingerprint"] == again

    del cluster.annotations[labels.REBUILD]
    cluster.operate()
    assert cluster.running("build") == []
    assert cluster.status["fingerprint"] == before
