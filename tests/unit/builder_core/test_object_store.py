"""What ``gs://`` adds to ``s3://``, which is read from a real server in ``tests/integration/test_object_store.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from enginewright_builder.errors import UserError
from enginewright_builder.foreign_names import check_names
from enginewright_builder.sources import object_store
from enginewright_builder.sources.base import FetchContext
from enginewright_builder.sources.digest import content_digest
from enginewright_builder.sources.fetching import fetch
from support import fake_gcs

MODEL = {"net/config.json": b"{}", "net/model.safetensors": b"w" * 5000, "net/1_Pooling/config.json": b"[]"}


def test_a_bucket_of_googles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "PART_BYTES", 999)
    with fake_gcs.serving("models", {**MODEL, "other": b"o"}) as key:
        monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", key)
        context = FetchContext(mounts={}, scratch=tmp_path / "scratch")
        path, digest = fetch("gs://models/net", context)
        assert {file.relative_to(path).as_posix(): file.read_bytes() for file in path.rglob("*") if file.is_file()} == {
            name.removeprefix("net/"): data for name, data in MODEL.items()}
        assert digest == content_digest(path)
        with pytest.raises(UserError) as caught:
            fetch("gs://others/net", context)
        assert (caught.value.reason, "NoSuchBucket" in caught.value.message) == ("SourceNotFound", True)


@pytest.mark.parametrize("key", ["../x", "a/../../x", "/x"])
def test_a_key_that_leads_out_of_its_folder_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="leads out of its folder"):
        check_names([object_store._below(f"net/{key}", "net")])
