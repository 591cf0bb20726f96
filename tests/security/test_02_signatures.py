"""Finding 2, the other half: whose signature counts, what happens when the key is rotated, and what else of the store
an engine is made from."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import pytest

from enginewright_builder.contract import MANIFEST_FILE, BuildRequest, Manifest, Outcome, SourceRequest
from enginewright_builder.engine_store import folder as store
from enginewright_builder.engine_store import graphs as graph_store
from enginewright_builder.engine_store import signing
from enginewright_builder.engine_store.manifest import manifest_digest
from enginewright_builder.engine_store.signing import Keys, read_keys
from enginewright_builder.engines import trt_timing_cache
from enginewright_builder.engines.trt_timing_cache import CacheKey
from enginewright_builder.errors import TransientError, UserError

FINGERPRINT = "ab" * 32
OLD, NEW, FOREIGN = (letter * 64 for letter in (b"o", b"n", b"f"))


def published(shelf: Path, keys: Keys | None, content: bytes = b"weights") -> Manifest:
    staging = shelf.parent / f"staging-{hashlib.sha256(content).hexdigest()[:8]}"
    staging.mkdir(exist_ok=True)
    (staging / "model.onnx").write_bytes(content)
    return store.publish(staging, shelf, FINGERPRINT, outcome=Outcome(kind="build", ok=True), keys=keys)


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


class TestRotation:
    def test_engines_of_the_previous_key_stay_hits_and_new_ones_get_the_new_key(self, shelf: Path) -> None:
        made = published(shelf, Keys(current=OLD))
        rotated = Keys(current=NEW, previous=OLD)
        assert store.lookup(shelf, FINGERPRINT, keys=rotated) == made
        assert rotated.signed(made).signature != made.signature
        assert store.lookup(shelf, FINGERPRINT, keys=rotated) == made, "nothing is signed again behind one's back"

    def test_without_the_previous_key_they_are_built_again(self, shelf: Path) -> None:
        made = published(shelf, Keys(current=OLD))
        assert store.lookup(shelf, FINGERPRINT, keys=Keys(current=NEW)) is None
        again = published(shelf, Keys(current=NEW), b"other weights")
        assert store.lookup(shelf, FINGERPRINT, keys=Keys(current=NEW)) == again != made

    def test_the_previous_key_signs_nothing(self, shelf: Path) -> None:
        made = published(shelf, Keys(current=NEW, previous=OLD))
        assert store.lookup(shelf, FINGERPRINT, keys=Keys(current=OLD)) is None
        assert made.signature is not None
        assert made.signature.key == hashlib.sha256(NEW).hexdigest()[:16]


class TestWhatCounts:
    @pytest.mark.parametrize("keys", [None, Keys(current=FOREIGN)], ids=["unsigned", "foreign"])
    def test_publishing_over_what_does_not_count_leaves_ours(self, keys: Keys | None, shelf: Path) -> None:
        """Whoever was first has not won: of two honest builders one would."""
        published(shelf, keys, b"theirs")
        ours = published(shelf, Keys(current=OLD), b"ours")
        assert (shelf / FINGERPRINT / "model.onnx").read_bytes() == b"ours"
        assert store.lookup(shelf, FINGERPRINT, keys=Keys(current=OLD)) == ours

    def test_by_hand_there_is_no_key_and_the_store_is_ones_own(self, shelf: Path) -> None:
        made = published(shelf, None)
        assert made.signature is None
        assert store.lookup(shelf, FINGERPRINT) == made
        assert b"signature" not in (shelf / FINGERPRINT / MANIFEST_FILE).read_bytes()

    def test_a_signature_is_part_of_the_digest_that_replicas_are_pinned_to(self, shelf: Path) -> None:
        made = published(shelf, Keys(current=OLD))
        assert manifest_digest(made) != manifest_digest(dataclasses.replace(made, signature=None))

    def test_a_mac_for_one_thing_counts_for_no_other(self) -> None:
        keys = Keys(current=OLD)
        assert keys.verifies("graph a", b"x", keys.mac("graph a", b"x"))
        assert not keys.verifies("graph b", b"x", keys.mac("graph a", b"x"))
        assert not keys.verifies("manifest", b"x", keys.mac("graph a", b"x"))
        assert not keys.verifies("graph a", b"x", "é")

    def test_a_key_is_not_shown(self) -> None:
        assert OLD.decode() not in repr(Keys(current=OLD, previous=NEW))

    def test_a_builder_that_signs_makes_the_same_engine(self) -> None:
        plain = BuildRequest(model_name="m", source=SourceRequest(uri="x", digest=f"sha256:{'0' * 64}"))
        signs = dataclasses.replace(plain, signing_keys="/signing-keys")
        assert signs.fingerprint() == plain.fingerprint()
        assert "signing_keys" not in plain.to_json()
        assert BuildRequest.from_json(signs.to_json()) == signs


class TestKeys:
    def test_a_secret_as_it_is_mounted(self, tmp_path: Path) -> None:
        (tmp_path / "key").write_bytes(NEW + b"\n")
        (tmp_path / "previous").write_bytes(OLD)
        found = read_keys(str(tmp_path))
        assert found is not None
        assert (found.current, found.previous) == (NEW, OLD)

    def test_a_secret_that_is_not_there_is_waited_for(self, tmp_path: Path) -> None:
        """Never taken for a store that is trusted as it is."""
        for folder in (tmp_path, tmp_path / "missing"):
            with pytest.raises(TransientError) as caught:
                read_keys(str(folder))
            assert caught.value.reason == "SigningKeyMissing"
            assert "enginewright-engine-signing" in str(caught.value)

    @pytest.mark.parametrize("entry", ["key", "previous"])
    def test_a_key_that_can_be_guessed_is_refused_and_not_shown(self, entry: str, tmp_path: Path) -> None:
        (tmp_path / "key").write_bytes(NEW)
        (tmp_path / entry).write_bytes(b"guess me")
        with pytest.raises(UserError) as caught:
            read_keys(str(tmp_path))
        assert caught.value.reason == "SigningKeyInvalid"
        assert f"entry {entry} of Secret enginewright-engine-signing" in str(caught.value)
        assert "guess" not in f"{caught.value}{caught.value.value}{caught.value.remedy}"

    def test_the_operator_makes_one_that_is_long_enough(self) -> None:
        from enginewright.act.execute import KEY_BYTES

        assert KEY_BYTES >= signing.LEAST_KEY_BYTES


class TestWhatABuildBeginsFrom:
    """Typed graphs become engines; TensorRT reads timing caches in C++, in the process that has the key."""

    KEYS = Keys(current=OLD)

    def kept(self, folder: Path, name: str, keys: Keys | None, content: bytes = b"graph") -> None:
        (folder / "made").mkdir(exist_ok=True)
        (folder / "made" / "model.onnx").write_bytes(content)
        assert graph_store.save(folder, name, [folder / "made" / "model.onnx"], keys=keys) == ""

    @pytest.fixture(autouse=True)
    def room(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(graph_store, "SPARE_BYTES", 0)

    def load(self, folder: Path, name: str) -> graph_store.Found:
        (folder / "target").mkdir(exist_ok=True)
        return graph_store.load(folder, name, folder / "target", self.KEYS)

    def test_a_graph_of_a_build_job_is_used(self, tmp_path: Path) -> None:
        self.kept(tmp_path, "fp16-1", self.KEYS)
        assert self.load(tmp_path, "fp16-1").here

    @pytest.mark.parametrize("keys", [None, Keys(current=FOREIGN)], ids=["unsigned", "foreign"])
    def test_a_planted_one_is_not(self, keys: Keys | None, tmp_path: Path) -> None:
        self.kept(tmp_path, "fp16-1", keys)
        found = self.load(tmp_path, "fp16-1")
        assert not found.here
        assert "no signature of a build Job" in found.problem
        assert not (tmp_path / "target" / "model.onnx").exists()

    def test_nor_is_a_graph_of_a_build_job_under_another_name(self, tmp_path: Path) -> None:
        self.kept(tmp_path, "fp16-1", self.KEYS)
        (tmp_path / "graphs" / "fp16-1").rename(tmp_path / "graphs" / "fp16-2")
        assert not self.load(tmp_path, "fp16-2").here

    def test_a_timing_cache_counts_with_a_signature_for_its_device_alone(self, tmp_path: Path) -> None:
        key = CacheKey(product="NVIDIA H200", capability="9.0", mig_profile="", tensorrt="10.6.0")
        other = dataclasses.replace(key, mig_profile="1g.18gb")
        trt_timing_cache.save(tmp_path, key, b"timed", self.KEYS)
        assert trt_timing_cache.load(tmp_path, key, self.KEYS).content == b"timed"
        planted = (tmp_path / key.file).read_bytes().replace(key.text.encode(), other.text.encode())
        (tmp_path / other.file).write_bytes(planted)
        assert trt_timing_cache.load(tmp_path, other, self.KEYS).content == b""
        trt_timing_cache.save(tmp_path, key, b"evil")
        found = trt_timing_cache.load(tmp_path, key, self.KEYS)
        assert (found.content, "is not signed" in found.problem) == (b"", True)
