"""Engines in a bucket: a real server that speaks S3, used by the builder's own code and its commands."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from enginewright_builder.cli import main
from enginewright_builder.contract import STORE_VARIABLES as PREFIX
from enginewright_builder.contract import (
    AccuracyRequest,
    BucketRequest,
    BuildRequest,
    EngineRequest,
    Manifest,
    Outcome,
    SourceRequest,
)
from enginewright_builder.engine_store import bucket as engines
from enginewright_builder.engine_store import bucket_gc as gc
from enginewright_builder.engine_store import folder as store
from enginewright_builder.engine_store import store as engine_store
from enginewright_builder.engine_store.manifest import VerificationError, manifest_digest, verify
from enginewright_builder.engine_store.signing import Keys
from enginewright_builder.engine_store.store import BucketStore
from enginewright_builder.errors import TransientError, UserError
from enginewright_builder.objectstore.bucket import Bucket, Entry, store_environment
from enginewright_builder.pipeline import run_build, run_resolve
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.show import show
from enginewright_builder.verify import main as check
from support import object_store as stores
from support.measuring import short_measurements
from support.models import mlp
from support.object_store import ObjectStore
from support.stand_in import free_port

__all__ = ["short_measurements"]

FINGERPRINT, OTHER = "ab" * 32, "cd" * 32
FILES = {"model_repository/model/1/model.onnx": b"w" * 70_000, "model_repository/model/config.pbtxt": b"backend",
         "report.html": b"<html>"}
WEEK = 7 * 24 * 3600.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with stores.running(tmp_path_factory.mktemp("s3")) as found:
        yield found


@pytest.fixture
def uri(server: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in server.environment.items():
        monkeypatch.setenv(PREFIX + name, value)
    name = f"engines-{abs(hash(tmp_path)):x}"[:40]
    server.put(name, {"beside": b"not ours", "team-b/beside": b"not ours"})
    return f"s3://{name}/team"


@pytest.fixture
def bucket(uri: str) -> Bucket:
    return Bucket(uri)


def shelf(bucket: Bucket, folder: Path, *, check_digests: bool = False, keys: Keys | None = None) -> BucketStore:
    folder.mkdir(exist_ok=True)
    return BucketStore(bucket, folder, check_digests=check_digests, keys=keys)


def staged(folder: Path, files: dict[str, bytes] | None = None) -> Path:
    for name, data in (files or FILES).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def published(bucket: Bucket, folder: Path, files: dict[str, bytes] | None = None,
              fingerprint: str = FINGERPRINT, *, check_digests: bool = False, keys: Keys | None = None) -> Manifest:
    folder.mkdir()
    outcome = Outcome(kind="build", ok=True, fingerprint=fingerprint)
    return shelf(bucket, folder / "store", check_digests=check_digests, keys=keys).publish(
        staged(folder / "staging", files), fingerprint, outcome=outcome)


def objects(server: ObjectStore, uri: str) -> set[str]:
    root = server.root / uri.removeprefix("s3://").partition("/")[0]
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def blob(server: ObjectStore, uri: str, manifest: Manifest, name: str) -> Path:
    root = server.root / uri.removeprefix("s3://")
    return root / engines.blob_key(manifest.files[name])


class TestPublishing:
    def test_an_engine_is_there_for_others_whole(self, bucket: Bucket, tmp_path: Path) -> None:
        assert shelf(bucket, tmp_path / "s").lookup(FINGERPRINT) is None
        ours = published(bucket, tmp_path / "a")
        other = shelf(bucket, tmp_path / "s")
        assert other.holds(FINGERPRINT)
        assert other.lookup(FINGERPRINT) == ours
        target = tmp_path / "pod" / FINGERPRINT
        engines.fetch_engine(bucket, FINGERPRINT, target, manifest_digest(ours))
        assert verify(target, FINGERPRINT, manifest_digest=manifest_digest(ours)) == ours
        assert {name: (target / name).read_bytes() for name in FILES} == FILES

    def test_nothing_outside_of_the_prefix_is_touched(self, bucket: Bucket, uri: str, server: ObjectStore,
                                                      tmp_path: Path) -> None:
        before = objects(server, uri)
        published(bucket, tmp_path / "a")
        shelf(bucket, tmp_path / "s").check_writable(1000)
        gc.collect(bucket, grace_seconds=0)
        assert all(name.startswith("team/") for name in objects(server, uri) - before)
        assert before <= objects(server, uri)

    def test_of_two_that_publish_at_once_one_wins_and_nothing_is_mixed(self, bucket: Bucket, tmp_path: Path) -> None:
        together = threading.Barrier(2)

        def build(name: str) -> Manifest:
            together.wait()
            return published(bucket, tmp_path / name, {**FILES, "report.html": name.encode()})

        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(build, ["one", "two"])
        assert first == second
        engines.fetch_engine(bucket, FINGERPRINT, tmp_path / "pod")
        assert verify(tmp_path / "pod", FINGERPRINT) == first

    def test_the_second_to_publish_takes_the_engine_that_is_there(self, bucket: Bucket, tmp_path: Path) -> None:
        ours = published(bucket, tmp_path / "a")
        assert published(bucket, tmp_path / "b", {"report.html": b"another"}) == ours

    @pytest.mark.parametrize("broken", ["upload", "create", "look"])
    def test_a_bucket_that_does_not_answer_for_a_while_costs_no_build(
            self, broken: str, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        plain, tries = getattr(Bucket, broken), list[str]()

        def flaky(self: Bucket, key: str, *rest: object) -> object:
            tries.append(key)
            done = plain(self, key, *rest)
            if len(tries) < 3:  # done, for all that; the answer was lost
                raise TransientError("StoreUnreachable", "no route")
            return done

        monkeypatch.setattr(Bucket, broken, flaky)
        monkeypatch.setattr(engine_store, "WAITS", (0.0, 0.0, 0.0))
        ours = published(bucket, tmp_path / "a")
        assert engines.look_up(bucket, FINGERPRINT) == ours

    def test_half_an_engine_is_none(self, bucket: Bucket, uri: str, tmp_path: Path,
                                    monkeypatch: pytest.MonkeyPatch) -> None:
        def dies(*arguments: object) -> bool:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Bucket, "create", dies)
            with pytest.raises(KeyboardInterrupt):
                published(bucket, tmp_path / "a")
        assert [entry.key for entry in bucket.entries() if entry.key.startswith(engines.BLOBS)]
        assert not shelf(bucket, tmp_path / "s").holds(FINGERPRINT)
        assert shelf(bucket, tmp_path / "s").lookup(FINGERPRINT) is None
        with pytest.raises(VerificationError, match="is not there"):
            engines.fetch_engine(bucket, FINGERPRINT, tmp_path / "pod")

    def test_a_large_file_goes_up_and_comes_down_in_parts(self, bucket: Bucket, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("enginewright_builder.objectstore.bucket.PART_BYTES", 5 << 20)
        files = {"model.plan": bytes(range(256)) * (45 << 10)}
        published(bucket, tmp_path / "a", files)
        engines.fetch_engine(bucket, FINGERPRINT, tmp_path / "pod")
        assert (tmp_path / "pod" / "model.plan").read_bytes() == files["model.plan"]


class TestDamage:
    @pytest.fixture
    def manifest(self, bucket: Bucket, tmp_path: Path) -> Manifest:
        return published(bucket, tmp_path / "a")

    @pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"short")])
    def test_a_file_that_is_gone_or_cut_is_built_again(self, damage: Callable[[Path], None], bucket: Bucket, uri: str,
                                                       manifest: Manifest, server: ObjectStore, tmp_path: Path) -> None:
        damage(blob(server, uri, manifest, "report.html"))
        notes: list[str] = []
        (tmp_path / "s").mkdir()
        assert BucketStore(bucket, tmp_path / "s", note=notes.append).lookup(FINGERPRINT) is None
        assert "report.html" in notes[0]
        again = published(bucket, tmp_path / "b", {**FILES, "report.html": b"another one"})
        assert shelf(bucket, tmp_path / "t").lookup(FINGERPRINT) == again != manifest

    def test_altered_bytes_are_refused_by_readers_and_built_again_when_they_say_so(
            self, bucket: Bucket, uri: str, manifest: Manifest, server: ObjectStore, tmp_path: Path) -> None:
        blob(server, uri, manifest, "report.html").write_bytes(b"<HTML>")
        with pytest.raises(VerificationError, match=r"report\.html has digest"):
            engines.fetch_engine(bucket, FINGERPRINT, tmp_path / "pod")
        assert shelf(bucket, tmp_path / "s").lookup(FINGERPRINT) == manifest  # sizes alone: nothing was downloaded
        assert shelf(bucket, tmp_path / "s", check_digests=True).lookup(FINGERPRINT) is None
        again = published(bucket, tmp_path / "b", {**FILES, "report.html": b"other"}, check_digests=True)
        engines.fetch_engine(bucket, FINGERPRINT, tmp_path / "pod", manifest_digest(again))
        assert verify(tmp_path / "pod", FINGERPRINT) == again != manifest

    def test_another_manifest_than_the_proven_one_is_refused(self, bucket: Bucket, manifest: Manifest,
                                                             tmp_path: Path) -> None:
        with pytest.raises(VerificationError, match="the engine that was proven"):
            engines.fetch_engine(bucket, FINGERPRINT, tmp_path / "pod", f"sha256:{'0' * 64}")
        assert not (tmp_path / "pod").exists()

    @pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b"])
    def test_a_manifest_leads_nowhere_else(self, name: str, bucket: Bucket, manifest: Manifest, tmp_path: Path) -> None:
        body = json.loads(manifest.to_json())
        body["files"] = {name: body["files"]["report.html"]}
        bucket.write(engines.manifest_key(FINGERPRINT), json.dumps(body).encode())
        with pytest.raises(VerificationError, match="leads out"):
            engines.fetch_engine(bucket, FINGERPRINT, tmp_path / "pod")

    def test_a_try_that_was_cut_off_is_gone_on_with(self, bucket: Bucket, manifest: Manifest, tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
        pod = tmp_path / "pod"
        staged(pod, {"report.html": FILES["report.html"], "model_repository/model/config.pbtxt": b"half",
                     "model_repository/model/2/model.onnx": b"foreign"})
        fetched: list[str] = []
        plain = Bucket.download

        def download(self: Bucket, key: str, size: int, target: Path) -> str | None:
            fetched.append(key)
            return plain(self, key, size, target)

        monkeypatch.setattr(Bucket, "download", download)
        engines.fetch_engine(bucket, FINGERPRINT, pod)
        assert verify(pod, FINGERPRINT) == manifest
        assert engines.blob_key(manifest.files["report.html"]) not in fetched


class TestSigned:
    """Two namespaces, each with a key of its own, share a bucket."""

    OURS, THEIRS = Keys(current=b"o" * 64), Keys(current=b"t" * 64)

    def test_another_ones_engine_is_no_hit_and_ours_takes_its_place(self, bucket: Bucket, tmp_path: Path) -> None:
        theirs = published(bucket, tmp_path / "a", keys=self.THEIRS)
        notes: list[str] = []
        (tmp_path / "s").mkdir()
        ours = BucketStore(bucket, tmp_path / "s", note=notes.append, keys=self.OURS)
        assert ours.lookup(FINGERPRINT) is None
        assert "is not signed with a key of Secret enginewright-engine-signing" in notes[0]
        assert not ours.holds(FINGERPRINT)
        made = published(bucket, tmp_path / "b", {**FILES, "report.html": b"ours"}, keys=self.OURS)
        assert shelf(bucket, tmp_path / "t", keys=self.OURS).lookup(FINGERPRINT) == made != theirs
        assert shelf(bucket, tmp_path / "t", keys=self.OURS).holds(FINGERPRINT)

    def test_replicas_of_the_other_find_the_engine_that_they_are_pinned_to(self, bucket: Bucket,
                                                                           tmp_path: Path) -> None:
        theirs = published(bucket, tmp_path / "a", keys=self.THEIRS)
        published(bucket, tmp_path / "b", {**FILES, "report.html": b"ours"}, keys=self.OURS)
        engines.fetch_engine(bucket, FINGERPRINT, tmp_path / "pod", manifest_digest(theirs))
        assert (tmp_path / "pod" / "report.html").read_bytes() == FILES["report.html"]

    def test_one_without_a_signature_is_no_hit_either(self, bucket: Bucket, tmp_path: Path) -> None:
        plain = published(bucket, tmp_path / "a")
        assert shelf(bucket, tmp_path / "s", keys=self.OURS).lookup(FINGERPRINT) is None
        assert published(bucket, tmp_path / "b", keys=self.OURS) != plain

    def test_an_engine_from_before_manifests_were_kept_is_fetched_by_its_digest(self, bucket: Bucket,
                                                                                tmp_path: Path) -> None:
        old = published(bucket, tmp_path / "a")
        bucket.remove(engines.kept_key(FINGERPRINT, manifest_digest(old)))
        assert engines.fetch_engine(bucket, FINGERPRINT, tmp_path / "pod", manifest_digest(old)) == old


class TestInAServingPod:
    @pytest.fixture
    def manifest(self, bucket: Bucket, tmp_path: Path) -> Manifest:
        return published(bucket, tmp_path / "a")

    @pytest.fixture
    def said(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        log = tmp_path / "termination-log"
        log.touch()
        monkeypatch.setenv("TERMINATION_LOG", str(log))
        return log

    def run(self, uri: str, manifest: Manifest, tmp_path: Path) -> int:
        (tmp_path / "smoke").mkdir(exist_ok=True)
        return check([str(tmp_path / "pod" / FINGERPRINT), "--from", uri, "--fingerprint", FINGERPRINT,
                      "--manifest-digest", manifest_digest(manifest), "--smoke-test", str(tmp_path / "smoke")])

    def test_the_engine_is_fetched_and_checked(self, uri: str, manifest: Manifest, said: Path, tmp_path: Path) -> None:
        for _ in range(2):  # a node that restarts runs init containers once more
            assert self.run(uri, manifest, tmp_path) == 0
        assert "is whole: 3 files" in said.read_text()
        assert (tmp_path / "pod" / FINGERPRINT / "report.html").read_bytes() == FILES["report.html"]
        assert (tmp_path / "smoke" / "smoke.py").exists()

    @pytest.mark.parametrize("address", ["", "http://127.0.0.1:1"])
    def test_an_engine_that_was_fetched_needs_its_bucket_no_more(
            self, address: str, uri: str, manifest: Manifest, said: Path, tmp_path: Path,
            monkeypatch: pytest.MonkeyPatch) -> None:
        """The node starts anew while the engine has been removed or built again, or the bucket is out of reach."""
        assert self.run(uri, manifest, tmp_path) == 0
        Bucket(uri).remove(engines.manifest_key(FINGERPRINT))
        if address:
            monkeypatch.setenv(f"{PREFIX}AWS_ENDPOINT_URL", address)
            monkeypatch.setattr("enginewright_builder.objectstore.client._RETRY", {"max_retries": 0})
        assert self.run(uri, manifest, tmp_path) == 0

    def test_one_that_is_lost_or_altered_is_refused(self, uri: str, manifest: Manifest, server: ObjectStore, said: Path,
                                                    tmp_path: Path) -> None:
        blob(server, uri, manifest, "report.html").write_bytes(b"<HTML>")
        assert self.run(uri, manifest, tmp_path) == 2
        assert "refused: report.html has digest" in said.read_text()
        Bucket(uri).remove(engines.manifest_key(FINGERPRINT))
        Bucket(uri).remove(engines.kept_key(FINGERPRINT, manifest_digest(manifest)))
        assert self.run(uri, manifest, tmp_path) == 2
        assert "manifest.json is not there" in said.read_text()

    @pytest.mark.parametrize(("name", "value", "reason"), [
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1", "StoreUnreachable"),
        ("AWS_SECRET_ACCESS_KEY", "wrong", "StoreAccessDenied"),
        ("AWS_ACCESS_KEY_ID", "", "CredentialsInvalid"),
    ])
    def test_a_bucket_that_does_not_let_it_says_nothing_of_the_engine(
            self, name: str, value: str, reason: str, uri: str, manifest: Manifest, said: Path, tmp_path: Path,
            monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(PREFIX + name, value)
        monkeypatch.setattr("enginewright_builder.objectstore.client._RETRY", {"max_retries": 0})
        assert self.run(uri, manifest, tmp_path) == 3
        assert f"cannot be fetched: {reason}" in said.read_text()

    def test_one_file_is_read_and_checked(self, uri: str, manifest: Manifest, server: ObjectStore) -> None:
        digest = manifest_digest(manifest)
        assert show(uri, FINGERPRINT, digest, "report.html") == (manifest.to_json().encode(), FILES["report.html"])
        with pytest.raises(VerificationError, match="nothing of engine"):
            show(uri, FINGERPRINT, digest, "nothing")
        with pytest.raises(VerificationError, match="the engine that was proven"):
            show(uri, FINGERPRINT, f"sha256:{'0' * 64}", "report.html")
        blob(server, uri, manifest, "report.html").write_bytes(b"<HTML>")
        with pytest.raises(VerificationError, match="digest"):
            show(uri, FINGERPRINT, digest, "report.html")

    def test_a_bucket_that_is_gone_says_nothing_of_the_engine(self, uri: str, manifest: Manifest, said: Path,
                                                              tmp_path: Path) -> None:
        assert self.run("s3://no-such-bucket", manifest, tmp_path) == 3
        assert "cannot be fetched: StoreMissing" in said.read_text()

    def test_a_disk_that_is_full_says_nothing_of_the_engine(self, uri: str, manifest: Manifest, said: Path,
                                                            tmp_path: Path) -> None:
        (tmp_path / "pod").write_bytes(b"in the way")
        assert self.run(uri, manifest, tmp_path) == 3
        assert "cannot be written" in said.read_text()


class TestCollecting:
    def aged(self, monkeypatch: pytest.MonkeyPatch, **days: float) -> None:
        """Objects whose key holds the word are so many days old."""
        plain = Bucket._entry

        def entry(self: Bucket, meta: object) -> Entry:
            found = plain(self, meta)
            old = next((age for word, age in days.items() if word in found.key), 0.0)
            return Entry(key=found.key, size=found.size, modified=found.modified - timedelta(days=old),
                         version=found.version)

        monkeypatch.setattr(Bucket, "_entry", entry)

    def test_what_nobody_wants_goes_with_its_files_and_what_others_share_stays(
            self, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        published(bucket, tmp_path / "a")
        shared = published(bucket, tmp_path / "b", {**FILES, "report.html": b"its own"}, OTHER)
        self.aged(monkeypatch, **{FINGERPRINT: 8, "blobs": 8})
        found = gc.collect(bucket, grace_seconds=WEEK, remove=[FINGERPRINT])
        assert (found.removed, found.spared, found.leftovers) == ((FINGERPRINT,), (), 1)
        left = {entry.key for entry in bucket.entries()}
        assert {key for key in left if key.startswith(engines.BLOBS)} == set(map(engines.blob_key,
                                                                                 shared.files.values()))
        engines.fetch_engine(bucket, OTHER, tmp_path / "pod")

    def test_every_manifest_of_an_engine_keeps_its_files_and_goes_with_it(self, bucket: Bucket, tmp_path: Path,
                                                                          monkeypatch: pytest.MonkeyPatch) -> None:
        theirs = published(bucket, tmp_path / "a", keys=TestSigned.THEIRS)
        published(bucket, tmp_path / "b", {**FILES, "report.html": b"ours"}, keys=TestSigned.OURS)
        bucket.write(engines.kept_key(FINGERPRINT, "0" * 64), b"{")  # no replica takes it: it names nothing
        self.aged(monkeypatch, manifest=8, blobs=8)
        gc.collect(bucket, grace_seconds=WEEK, keep=[FINGERPRINT])
        assert all(bucket.look(engines.blob_key(entry)) for entry in theirs.files.values())
        assert gc.collect(bucket, grace_seconds=WEEK).removed == (FINGERPRINT,)
        assert {entry.key for entry in bucket.entries()} == {engines.PROBE}

    def test_a_kept_manifest_of_an_engine_that_is_gone_goes_when_it_is_old(self, bucket: Bucket, tmp_path: Path,
                                                                           monkeypatch: pytest.MonkeyPatch) -> None:
        made = published(bucket, tmp_path / "a")
        bucket.remove(engines.manifest_key(FINGERPRINT))
        kept = engines.kept_key(FINGERPRINT, manifest_digest(made))
        gc.collect(bucket, grace_seconds=WEEK)
        assert bucket.look(kept)
        self.aged(monkeypatch, manifests=8)
        gc.collect(bucket, grace_seconds=WEEK)
        assert bucket.look(kept) is None

    def test_the_young_the_kept_and_the_wanted_stay(self, bucket: Bucket, tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
        published(bucket, tmp_path / "a")
        assert gc.collect(bucket, grace_seconds=WEEK).spared == (FINGERPRINT,)
        self.aged(monkeypatch, manifest=8, blobs=8)
        assert gc.collect(bucket, grace_seconds=WEEK, keep=[FINGERPRINT]).removed == ()
        shelf(bucket, tmp_path / "s").mark_used(FINGERPRINT)
        assert gc.collect(bucket, grace_seconds=WEEK).spared == (FINGERPRINT,)
        engines.fetch_engine(bucket, FINGERPRINT, tmp_path / "pod")

    def test_a_build_that_wants_it_meanwhile_gets_it_back(self, bucket: Bucket, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
        ours = published(bucket, tmp_path / "a")
        self.aged(monkeypatch, manifest=8, blobs=8)
        builder, plain = shelf(bucket, tmp_path / "s"), Bucket.remove

        def remove(self: Bucket, key: str) -> None:
            builder.mark_used(FINGERPRINT)
            plain(self, key)

        monkeypatch.setattr(Bucket, "remove", remove)
        assert gc.collect(bucket, grace_seconds=WEEK).removed == ()
        assert builder.lookup(FINGERPRINT) == ours

    def test_files_of_a_build_that_has_not_published_yet_stay(self, bucket: Bucket, tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
        """Its files were there before, of an engine that is gone, and are uploaded while the collector runs."""
        ours = published(bucket, tmp_path / "a")
        bucket.remove(engines.manifest_key(FINGERPRINT))
        ages = {"blobs": 8.0}
        self.aged(monkeypatch, **ages)
        plain = gc._named

        def builds(found: Bucket) -> set[str]:
            named = plain(found)
            monkeypatch.undo()  # uploaded anew: they are young
            return named

        monkeypatch.setattr(gc, "_named", builds)
        assert gc.collect(bucket, grace_seconds=WEEK).leftovers == 0
        assert all(bucket.look(engines.blob_key(entry)) for entry in ours.files.values())

    def test_a_file_that_went_while_it_was_published_is_uploaded_once_more(self, bucket: Bucket, tmp_path: Path,
                                                                           monkeypatch: pytest.MonkeyPatch) -> None:
        plain = Bucket.create

        def create(self: Bucket, key: str, data: bytes) -> bool:
            for entry in list(self.entries(engines.BLOBS)):
                self.remove(entry.key)
            return plain(self, key, data)

        monkeypatch.setattr(Bucket, "create", create)
        assert published(bucket, tmp_path / "a")
        engines.fetch_engine(bucket, FINGERPRINT, tmp_path / "pod")

    def test_no_file_goes_while_a_manifest_cannot_be_read(self, bucket: Bucket, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
        published(bucket, tmp_path / "a")
        bucket.write(engines.manifest_key(OTHER), b"{")
        self.aged(monkeypatch, blobs=8)
        before = {entry.key for entry in bucket.entries(engines.BLOBS)}
        with pytest.raises(TransientError, match="not valid"):
            gc.collect(bucket, grace_seconds=WEEK)
        assert {entry.key for entry in bucket.entries(engines.BLOBS)} == before

    def test_the_command_collects_in_a_bucket(self, bucket: Bucket, uri: str, tmp_path: Path,
                                              capsys: pytest.CaptureFixture[str]) -> None:
        published(bucket, tmp_path / "a")
        assert main(["gc", "--store", uri, "--grace", str(WEEK), "--remove", FINGERPRINT]) == 0
        assert json.loads(capsys.readouterr().out)["removed"] == []  # it is younger
        assert main(["gc", "--store", "s3://no-such-bucket", "--grace", "0"]) == 2
        assert json.loads(capsys.readouterr().out)["reason"] == "StoreMissing"


class TestTheWorld:
    def test_credentials_of_the_source_are_not_the_stores(self, uri: str, server: ObjectStore, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-source")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-source")
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        shelf(Bucket(uri), tmp_path / "s").check_writable(1)

    def test_strangers_are_refused(self, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(f"{PREFIX}AWS_SECRET_ACCESS_KEY", "wrong")
        with pytest.raises(UserError, match="may not be used") as caught:
            shelf(Bucket(uri), tmp_path / "s").check_writable(1)
        assert (caught.value.reason, caught.value.field) == ("StoreAccessDenied", "spec.store.uri")
        assert "wrong" not in f"{caught.value}{caught.value.remedy}"

    @pytest.mark.parametrize(("name", "value", "said"), [
        ("AWS_ENDPOINT_URL", "minio:9000", "AWS_ENDPOINT_URL is no address"),
        ("AWS_ACCESS_KEY_ID", "", "a pair"),
    ])
    def test_credentials_that_are_none_are_told_without_their_values(self, name: str, value: str, said: str, uri: str,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(PREFIX + name, value)
        with pytest.raises(UserError, match=said) as caught:
            Bucket(uri)
        assert (caught.value.reason, caught.value.field) == ("CredentialsInvalid", "spec.store.secretRef")

    def test_a_bucket_that_is_not_there_is_told(self, uri: str, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="no-such-bucket is not there") as caught:
            shelf(Bucket("s3://no-such-bucket"), tmp_path / "s").check_writable(1)
        assert caught.value.reason == "StoreMissing"

    def test_a_bucket_out_of_reach_is_tried_again(self, uri: str, tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(f"{PREFIX}AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
        monkeypatch.setattr("enginewright_builder.objectstore.client._RETRY", {"max_retries": 0})
        with pytest.raises(TransientError) as caught:
            shelf(Bucket(uri), tmp_path / "s").check_writable(1)
        assert caught.value.reason == "StoreUnreachable"

    def test_one_without_conditional_writes_is_told_before_a_build(self, bucket: Bucket, tmp_path: Path,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
        def refuses(self: Bucket, key: str, data: bytes) -> bool:
            raise TransientError("StoreUnreachable", "501 NotImplemented", field="spec.store.uri")

        monkeypatch.setattr(Bucket, "create", refuses)
        with pytest.raises(TransientError, match="NotImplemented"):
            shelf(bucket, tmp_path / "s").check_writable(1)

    def test_a_whole_bucket_is_a_store(self, uri: str, tmp_path: Path) -> None:
        bucket = Bucket(uri.removesuffix("/team"))
        ours = published(bucket, tmp_path / "a")
        assert engines.look_up(bucket, FINGERPRINT) == ours


def test_timing_caches_come_and_go_and_never_fail_a_build(bucket: Bucket, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    first, second = (tmp_path / name for name in ("a", "b"))
    for folder in (first, second):
        folder.mkdir()
    (first / store.TIMING_CACHES / "graphs" / "key").mkdir(parents=True)
    (first / store.TIMING_CACHES / "graphs" / "key" / "graph.onnx").write_bytes(b"large")
    (first / store.TIMING_CACHES / "H100-11.4.cache").write_bytes(b"measured")
    BucketStore(bucket, first, note=notes.append).keep_timings()
    BucketStore(bucket, second, note=notes.append).bring_timings()
    assert notes == []
    there = {path.name: path.read_bytes() for path in (second / store.TIMING_CACHES).iterdir()}
    assert there == {"H100-11.4.cache": b"measured"}
    monkeypatch.setattr("enginewright_builder.objectstore.client._RETRY", {"max_retries": 0})
    monkeypatch.setenv(f"{PREFIX}AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    away = BucketStore(Bucket(bucket.uri), first, note=notes.append)
    away.bring_timings()
    away.keep_timings()
    assert len(notes) == 2


def test_a_request_says_which_store(uri: str, tmp_path: Path) -> None:
    plain = BuildRequest(model_name="m", source=SourceRequest(uri="x", digest=f"sha256:{'0' * 64}"),
                         store_path=str(tmp_path))
    there = BuildRequest.from_json(BuildRequest(model_name="m", source=plain.source, store_path=str(tmp_path),
                                                bucket=BucketRequest(uri=uri)).to_json())
    assert "bucket" not in plain.to_json()
    assert isinstance(engine_store.of(there), BucketStore)
    assert there.fingerprint() == plain.fingerprint()
    assert not engine_store.of(there).holds(there.fingerprint())


IRSA = {"AWS_ROLE_ARN": "role", "AWS_WEB_IDENTITY_TOKEN_FILE": "/token", "AWS_REGION": "eu-west-1"}
SOURCE = {"AWS_ACCESS_KEY_ID": "source", "AWS_SESSION_TOKEN": "source", "AWS_ENDPOINT_URL": "http://source",
          "GOOGLE_SERVICE_ACCOUNT_KEY": "source"}


@pytest.mark.parametrize(("environ", "seen"), [
    (SOURCE, {}),
    ({**SOURCE, "AWS_REGION": "of-the-source"}, {}),
    ({**SOURCE, **IRSA}, IRSA),
    ({**IRSA, f"{PREFIX}AWS_REGION": "eu-west-3\n"}, {**IRSA, "AWS_REGION": "eu-west-3"}),
    ({**SOURCE, **IRSA, f"{PREFIX}AWS_ACCESS_KEY_ID": "a", f"{PREFIX}AWS_SECRET_ACCESS_KEY": "b"},
     {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}),
    ({f"{PREFIX}GOOGLE_SERVICE_ACCOUNT_KEY": "{}", f"{PREFIX}PATH": "/evil"}, {"GOOGLE_SERVICE_ACCOUNT_KEY": "{}"}),
])
def test_what_the_client_of_the_store_sees(environ: dict[str, str], seen: dict[str, str]) -> None:
    assert store_environment(environ) == seen


def test_a_key_for_google_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{PREFIX}GOOGLE_SERVICE_ACCOUNT_KEY", "no json")
    with pytest.raises(UserError) as caught:
        Bucket("gs://engines/team-a")
    assert (caught.value.reason, caught.value.field) == ("CredentialsInvalid", "spec.store.secretRef")


def test_ages_are_the_buckets_own(bucket: Bucket) -> None:
    assert isinstance(engines.probe(bucket), datetime)


def build_of(bucket: Bucket, model: Path, folder: Path) -> tuple[BuildRequest, Outcome]:
    """A real build in a pod of its own: nothing is there but the request."""
    (folder / "store").mkdir(parents=True)
    request = BuildRequest(model_name=folder.name, source=SourceRequest(uri=str(model)),
                           engine=EngineRequest(max_batch_size=4, build_budget_seconds=900),
                           accuracy=AccuracyRequest(tolerance=0.05), store_path=str(folder / "store"),
                           bucket=BucketRequest(uri=bucket.uri))
    scratch = folder / "scratch"
    scratch.mkdir()
    return request, run_build(request, scratch, Tracker(JsonLines(io.StringIO())))


@pytest.mark.triton
def test_what_one_build_publishes_the_next_one_takes_and_a_replica_fetches(
        bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enginewright_builder.evidence.appraisal.SECONDS", float("-inf"))  # however slow this machine
    model = tmp_path / "model.onnx"
    model.write_bytes(mlp().SerializeToString())
    _, first = build_of(bucket, model, tmp_path / "first")
    assert first.ok, first.error
    assert bucket.look(engines.used_key(first.fingerprint)), "said before it was looked for"
    monkeypatch.setattr("enginewright_builder.building.build", lambda *rest: 1 / 0)
    _, second = build_of(bucket, model, tmp_path / "second")
    assert second.ok, second.error
    assert second.cache_hit
    assert (second.fingerprint, second.manifest_digest) == (first.fingerprint, first.manifest_digest)
    (tmp_path / "smoke").mkdir()
    assert check([str(tmp_path / "pod"), "--from", bucket.uri, "--fingerprint", first.fingerprint,
                  "--manifest-digest", first.manifest_digest, "--smoke-test", str(tmp_path / "smoke")]) == 0
    assert (tmp_path / "pod" / "model_repository" / "model" / "config.pbtxt").is_file()


def test_a_store_that_cannot_be_written_ends_a_resolve_step(bucket: Bucket, tmp_path: Path,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a device is spent on an engine that could not be kept."""
    model = tmp_path / "model.onnx"
    model.write_bytes(mlp().SerializeToString())
    (tmp_path / "store").mkdir()
    request = BuildRequest(model_name="m", source=SourceRequest(uri=str(model)), store_path=str(tmp_path / "store"),
                           bucket=BucketRequest(uri=bucket.uri))
    assert run_resolve(request, tmp_path, Tracker(JsonLines(io.StringIO()))).ok
    monkeypatch.setenv(f"{PREFIX}AWS_SECRET_ACCESS_KEY", "wrong")
    error = run_resolve(request, tmp_path, Tracker(JsonLines(io.StringIO()))).error
    assert error is not None
    assert (error.reason, error.field) == ("StoreAccessDenied", "spec.store.uri")
