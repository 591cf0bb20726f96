"""A model hub sends more than it states, compressed or over and over, lists names without end, or leads the build Job
to the node's service for credentials: the hub's own client reads and follows it all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import constants, get_session

from enginewright_builder.errors import UserError
from enginewright_builder.sources import hub as hubs
from enginewright_builder.sources import hub_client
from enginewright_builder.sources.base import FetchContext
from enginewright_builder.sources.fetching import fetch
from enginewright_builder.sources.hub_client import Limits
from support.fake_bad_hub import MOST, BadAnswers, FakeBadHub, Harm
from support.fake_hub import REPOSITORY, commit_of, serving

ONE = commit_of("one")
URI = f"hf://{REPOSITORY}@main"
NEAR = "http://169.254.169.254/latest/meta-data"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBadHub]:
    state = FakeBadHub(revisions={ONE: {"model.onnx": b"0123456789"}}, branches={"main": ONE})
    with serving(state, answers=BadAnswers):
        monkeypatch.setenv("HF_ENDPOINT", state.endpoint)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield state


def refused(tmp_path: Path) -> UserError:
    scratch = tmp_path / "scratch"
    with pytest.raises(UserError) as caught:
        fetch(URI, FetchContext(mounts={}, scratch=scratch))
    assert sum(path.stat().st_size for path in scratch.rglob("*.onnx")) == 0
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize(("harm", "said"), [
    ("endless", "sends more than the 10 bytes that it states of model.onnx"),
    ("resumed", "sends more than the 10 bytes that it states of model.onnx"),
    ("compressed", "sends an answer that is compressed"),
])
def test_a_file_is_no_longer_than_it_is_stated(harm: Harm, said: str, hub: FakeBadHub, tmp_path: Path,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 4)  # that it keeps, and goes on after
    hub.harm = harm
    error = refused(tmp_path)
    assert (error.reason, said in error.message) == ("SourceTooLarge", True), error.message
    assert hub.sent < MOST


def test_a_connection_that_breaks_goes_on(hub: FakeBadHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of each piece is lost, and comes again."""
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 4)
    hub.harm = "broken"
    path, _ = fetch(URI, FetchContext(mounts={}, scratch=tmp_path))
    assert (path / "model.onnx").read_bytes() == b"0123456789"
    assert hub.sent > 10


def test_a_listing_ends(hub: FakeBadHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "MOST_FILES", 10)
    hub.harm = "listed"
    error = refused(tmp_path)
    assert (error.reason, "more than 10 files" in error.message) == ("SourceTooLarge", True), error.message
    assert [asked for asked in hub.asked if asked.startswith("page")] == [f"page {number}" for number in range(4)]


def test_so_does_an_answer(hub: FakeBadHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_client, "MOST_WORDS", 1000)
    hub.revisions[ONE] = {f"{number}.json": b"" for number in range(100)}
    error = refused(tmp_path)
    assert (error.reason, "an answer of more than 1,000 bytes" in error.message) == ("SourceTooLarge", True)


def test_no_redirect_leads_to_this_machine(hub: FakeBadHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake is asked by the name of a hub elsewhere, as a proxy is: it would see the request to the next address."""
    monkeypatch.setenv("HTTP_PROXY", hub.endpoint)
    monkeypatch.setenv("http_proxy", hub.endpoint)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.example")
    assert fetch(URI, FetchContext(mounts={}, scratch=tmp_path / "good"))[0].joinpath("model.onnx").is_file()
    hub.harm, hub.following, hub.asked = "redirected", NEAR, []
    error = refused(tmp_path)
    assert (error.reason, "an address of the build Job's own machine" in error.message) == ("SourceUriInvalid", True)
    assert hub.asked, "the hub was asked"
    assert not any("meta-data" in path for path in hub.asked)


@pytest.mark.parametrize(("endpoint", "following", "said"), [
    ("https://huggingface.co", "http://elsewhere.example/x", "is not encrypted"),
    ("https://huggingface.co", "http://127.0.0.1/x", "is not encrypted"),
    ("https://huggingface.co", "https://127.0.0.1/x", "own machine"),
    ("https://huggingface.co", "https://[::ffff:169.254.169.254]/x", "own machine"),
    ("http://mirror.example", "http://169.254.169.254/x", "own machine"),
    ("http://mirror.example", "ftp://elsewhere.example/x", "is not encrypted"),
    ("https://huggingface.co", "https://cdn.example/x", ""), ("http://mirror.example", "http://cdn.example/x", ""),
    ("http://127.0.0.1:9", "http://127.0.0.1:8/x", ""),
])
def test_where_a_hub_may_lead(endpoint: str, following: str, said: str, tmp_path: Path) -> None:
    limits = Limits(URI, endpoint, FetchContext(mounts={}, scratch=tmp_path))
    request = SimpleNamespace(url=following, headers={})
    if not said:
        limits.check_request(request)
        assert request.headers == {"accept-encoding": "identity"}
        return
    with pytest.raises(UserError, match=said) as caught:
        limits.check_request(request)
    assert caught.value.reason == "SourceUriInvalid"


def test_what_names_and_sizes_tell_is_refused_before_a_download(tmp_path: Path) -> None:
    context = FetchContext(mounts={}, scratch=tmp_path, size_limit=100)
    files = [SimpleNamespace(path="a", size=200), SimpleNamespace(path="b", size=-200)]
    with pytest.raises(UserError, match="has 200 bytes, more than 100"):
        hubs._check(files, REPOSITORY, context)
    with pytest.raises(UserError, match="more than a hub sends of one file by https"):
        hubs._check([SimpleNamespace(path="a", size=hubs.MOST_OF_A_FILE + 1)], REPOSITORY,
                    FetchContext(mounts={}, scratch=tmp_path))
    with pytest.raises(UserError, match="leads out of its folder") as caught:
        hubs._check([SimpleNamespace(path="../a", size=1)], REPOSITORY, context)
    assert caught.value.reason == "SourceUriInvalid"


def test_the_client_is_as_it_was_afterwards(hub: FakeBadHub, tmp_path: Path) -> None:
    xet, hooks = constants.HF_HUB_DISABLE_XET, get_session().event_hooks
    fetch(URI, FetchContext(mounts={}, scratch=tmp_path))
    assert (constants.HF_HUB_DISABLE_XET, get_session().event_hooks) == (xet, hooks)
