"""Models and data in an object store: a real one that speaks S3, read by the builder's own code and its command."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from enginewright_builder.contract import BuildRequest, SourceRequest
from enginewright_builder.errors import TransientError, UserError
from enginewright_builder.foreign_names import check_names
from enginewright_builder.objectstore import client
from enginewright_builder.resolve import resolve
from enginewright_builder.sources import object_store
from enginewright_builder.sources.digest import content_digest
from enginewright_builder.sources.places import as_written
from support import object_store as stores
from support.fetched import content, got
from support.in_a_job import resolve_container, resolved
from support.models import mlp
from support.object_store import ObjectStore

MODEL = {"net/config.json": b"{}", "net/model.safetensors": b"w" * 5000, "net/1_Pooling/config.json": b"[]",
         "net/a b/\xfc#?.txt": b"odd"}
OTHERS = {"net2/x": b"beside", "single.onnx": b"graph", "empty": b""}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with stores.running(tmp_path_factory.mktemp("s3")) as found:
        found.put("models", {**MODEL, **OTHERS})
        yield found


@pytest.fixture
def store(server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server


@pytest.mark.parametrize("uri", ["s3://models/net", "s3://models/net/"])
def test_a_prefix_is_a_folder_with_the_digest_that_it_has_on_a_volume(uri: str, store: ObjectStore, tmp_path: Path,
                                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "PART_BYTES", 999)  # several parts
    path, digest = got(uri, tmp_path)
    assert content(path) == {name.removeprefix("net/"): data for name, data in MODEL.items()}
    assert digest == content_digest(store.root / "models" / "net")


@pytest.mark.parametrize(("key", "data"), [("single.onnx", b"graph"), ("empty", b""),
                                           ("net/a%20b/%C3%BC%23%3F.txt", b"odd")])
def test_one_object_is_a_file(key: str, data: bytes, store: ObjectStore, tmp_path: Path) -> None:
    path, _ = got(f"s3://models/{key}", tmp_path, field="spec.accuracy.evaluation.uri")
    assert path.read_bytes() == data


def test_a_whole_bucket_is_a_folder(store: ObjectStore, tmp_path: Path) -> None:
    path, _ = got("s3://models", tmp_path)
    assert content(path) == {**MODEL, **OTHERS}


@pytest.mark.parametrize(("uri", "reason", "said"), [
    ("s3://models/none", "SourceNotFound", "beside it are empty, net, net2, single.onnx"),
    ("s3://models/net/none", "SourceNotFound", "beside it are 1_Pooling, a b, config.json, model.safetensors"),
    ("s3://models/ne", "SourceNotFound", "there is nothing at"),
    ("s3://no-such-bucket/net", "SourceNotFound", "NoSuchBucket"),
    ("s3://models/../net", "SourceUriInvalid", ".."),
    ("s3://models/%2e%2e/net", "SourceUriInvalid", ".."),
    ("s3://models/net?versionId=1", "SourceUriInvalid", "bucket and key"),
    ("s3:///net", "SourceUriInvalid", "bucket and key"),
])
def test_what_is_not_there_is_told(uri: str, reason: str, said: str, store: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        got(uri, tmp_path)
    assert (caught.value.reason, caught.value.field) == (reason, "spec.source.uri")
    assert said in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize("uri", ["s3://models/net", "s3://models/single.onnx"])
@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "AWS_SKIP_SIGNATURE"])
def test_who_may_not_read_is_told_where_credentials_go(uri: str, name: str, store: ObjectStore, tmp_path: Path,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "true")
    with pytest.raises(UserError) as caught:
        got(uri, tmp_path)
    assert caught.value.reason == "SourceAccessDenied"
    assert "spec.source.secretRef" in caught.value.remedy


def test_a_store_that_does_not_answer_is_tried_again_later(store: ObjectStore, tmp_path: Path,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setitem(client._RETRY, "max_retries", 0)
    with pytest.raises(TransientError) as caught:
        got("s3://models/net", tmp_path)
    assert caught.value.reason == "SourceUnreachable"
    assert "AWS_ENDPOINT_URL" in caught.value.remedy


def test_more_than_there_is_room_for_is_refused_before_it_is_read(store: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        got("s3://models/net", tmp_path, size_limit=100)
    assert caught.value.reason == "SourceTooLarge"
    assert not content(tmp_path)


def test_an_object_that_is_written_meanwhile_makes_no_mixture(store: ObjectStore, tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "PART_BYTES", 10)
    store.put("moving", {"model": b"1" * 30})

    def write(fraction: float, detail: str) -> None:
        store.put("moving", {"model": b"2" * 30})

    with pytest.raises(TransientError) as caught:
        got("s3://moving/model", tmp_path, progress=write)
    assert "written while it was read" in caught.value.message
    assert not content(tmp_path), "and no part of it is left"


@pytest.mark.parametrize(("names", "said"), [
    (["a", "a/b"], "both a file and a folder"), (["a/../../b"], "leads out"), (["/etc/x"], "leads out"),
    (["a\0b"], "leads out"), (["a" * 251], "more than 250 bytes"),
])
def test_keys_that_make_no_folder_are_told(names: list[str], said: str) -> None:
    """A store allows them, a file system does not."""
    with pytest.raises(ValueError, match=said):
        check_names(names)


def test_the_markers_that_consoles_make_for_folders_are_no_files(store: ObjectStore, tmp_path: Path) -> None:
    """The client takes their final slash away."""
    found = [object_store._Object(key, size, None) for key, size in
             (("p", 0), ("p/x", 3), ("p/sub", 0), ("p/sub/y", 3), ("p/empty.txt", 0))]
    assert [entry.key for entry in object_store._without_markers(found, "p")] == ["p/x", "p/sub/y", "p/empty.txt"]


@pytest.mark.parametrize(("entries", "said"), [
    ({"AWS_ENDPOINT_URL": "minio:9000"}, "AWS_ENDPOINT_URL is no address"),
    ({"AWS_SECRET_ACCESS_KEY": ""}, "are a pair"),
    ({"AWS_SKIP_SIGNATURE": "yes please"}, "cannot be used"),
])
def test_entries_that_make_no_sense_are_told_without_their_values(entries: dict[str, str], said: str,
                                                                  store: ObjectStore, tmp_path: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in entries.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError) as caught:
        got("s3://models/net", tmp_path)
    assert (caught.value.reason, caught.value.field) == ("CredentialsInvalid", "spec.source.secretRef")
    assert said in caught.value.message
    assert stores.SECRET not in caught.value.message


def test_a_line_break_behind_an_entry_is_none_of_it(store: ObjectStore, tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """As kubectl create secret --from-file makes it."""
    for name, value in store.environment.items():
        monkeypatch.setenv(name, f"{value}\n")
    assert content(got("s3://models/net", tmp_path)[0])


def test_a_password_in_an_address_stays_out_of_messages(store: ObjectStore, tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:hunter2@127.0.0.1:9")
    monkeypatch.setitem(client._RETRY, "max_retries", 0)
    with pytest.raises(TransientError) as caught:
        got("s3://models/net", tmp_path)
    assert "hunter2" not in caught.value.message


def test_a_resolve_step_takes_model_and_samples_from_a_store(store: ObjectStore, tmp_path: Path) -> None:
    """The graph's names of files and the messages are as on a volume."""
    store.put("onnx", {"tiny/model.onnx": mlp().SerializeToString(), "broken/model.onnx": b"no graph"})
    (tmp_path / "store").mkdir()
    request = BuildRequest(model_name="tiny", source=SourceRequest(uri="s3://onnx/tiny"),
                           store_path=str(tmp_path / "store"))
    found = resolve(request, tmp_path / "scratch")
    assert (found.source.format, found.source.digest) == ("onnx", content_digest(store.root / "onnx" / "tiny"))
    broken = replace(request, source=SourceRequest(uri="s3://onnx/broken"))
    with pytest.raises(UserError) as caught:
        resolve(broken, tmp_path / "other")
    told = as_written(caught.value.report(), broken, tmp_path / "other")
    assert str(tmp_path) not in f"{told.message}{told.value}{told.remedy}"


def test_a_job_reads_with_the_secret_of_its_object(server: ObjectStore, tmp_path: Path) -> None:
    server.put("secrets", {"model.onnx": mlp().SerializeToString()})
    container = resolve_container("s3://secrets/model.onnx", "bucket")
    secret = {**server.environment, "AWS_SECRET_ACCESS_KEY": f"{server.environment['AWS_SECRET_ACCESS_KEY']}\n"}
    outcome, _ = resolved("s3://secrets/model.onnx", container, {"bucket": secret}, tmp_path / "job")
    assert outcome.ok, outcome.error
    secret["AWS_SECRET_ACCESS_KEY"] = "wrong"
    outcome, _ = resolved("s3://secrets/model.onnx", container, {"bucket": secret}, tmp_path / "another")
    assert outcome.error is not None
    assert outcome.error.reason == "SourceAccessDenied"
