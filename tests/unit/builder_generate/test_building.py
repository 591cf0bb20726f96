"""A build of a language model, with fake servers in vLLM's place: what is tried, what ships, what is published, and how
it ends in time. With vLLM itself: tests/integration/builder_vllm."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pytest
from safetensors.numpy import save_file

from enginewright_builder import generating
from enginewright_builder.contract import (
    MANIFEST_FILE,
    REFERENCE_FOLDER,
    AccuracyRequest,
    BuildRequest,
    CheckpointRequest,
    DataRequest,
    EngineRequest,
    GenerateRequest,
    Manifest,
    ObjectiveRequest,
    Outcome,
    SourceRequest,
    load,
)
from enginewright_builder.engine_store.manifest import verify
from enginewright_builder.errors import UserError
from enginewright_builder.generate import trial
from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.kept_prompts import read_prompts
from enginewright_builder.generate.packages import PACKAGES_VARIABLE
from enginewright_builder.generate.resolving import resolve_model
from enginewright_builder.generate.serving import read_serving
from enginewright_builder.generating import build_model, command
from enginewright_builder.pipeline import OUTCOME_FILE, run_build, run_finalists, run_proof, run_resolve
from enginewright_builder.progress import Tracker
from enginewright_builder.report.generation import GenerateReport
from enginewright_builder.steps import Budget, Steps
from enginewright_builder.sweep.objective import requests_to_decide, requests_to_show
from enginewright_builder.terminal import Terminal
from support.fake_openai import Model, fake_openai
from support.language_model import tokenizer

PROMPTS = 20


@dataclasses.dataclass
class FakeServer:
    """``trouble`` is as fake_openai has it; ``error`` is what its start ends in."""

    model: Model
    trouble: str = ""
    template: str = ""
    error: Exception | None = None
    start_seconds: float = 1.0
    version: str = "0.0.1"
    hangs: bool = False
    reads: int = 0
    http_url: str = ""
    _open: AsyncExitStack = dataclasses.field(default_factory=AsyncExitStack)

    async def __aenter__(self) -> Self:
        if self.error:
            raise self.error
        if self.hangs:
            await asyncio.Event().wait()
        self.http_url = (await self._open.enter_async_context(fake_openai(
            self.model, trouble=self.trouble, reads=self.reads, template=self.template))).url
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.stop()

    async def metrics(self) -> str:
        return ""

    async def memory_bytes(self) -> int:
        return 1 << 20

    def last_words(self) -> str:
        return ""

    async def stop(self) -> None:
        await self._open.aclose()


def counting(tokens: Sequence[int]) -> dict[int, float]:
    return {len(tokens) % 50: -0.1, len(tokens) % 50 + 1: -2.5}


def other(tokens: Sequence[int]) -> dict[int, float]:
    return {len(tokens) % 50 + 1: -0.1, len(tokens) % 50: -2.5}


class Servers:
    """Makes fake servers by ``choose``, and keeps what they were asked to serve with."""

    def __init__(self, choose: Callable[[ServerArguments], dict[str, Any]],
                 of_folder: Callable[[Path], dict[str, Any]] = lambda folder: {}) -> None:
        self.choose, self.of_folder, self.started = choose, of_folder, list[ServerArguments]()
        self.drafts = set[Path]()

    def __call__(self, folder: Path, arguments: ServerArguments, *, ready_seconds: float,
                 draft: Path | None = None) -> FakeServer:
        self.started.append(arguments)
        self.drafts |= {draft} if draft else set()
        return FakeServer(**{"model": counting, **self.choose(arguments), **self.of_folder(folder)})


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tokenizer(tmp_path_factory.mktemp("tiny"))
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "vocab_size": 257, "max_position_embeddings": 512, "dtype": "float32",
        "num_attention_heads": 2, "num_hidden_layers": 2, "hidden_size": 64}))
    save_file({"weight": np.zeros(4, np.float32)}, folder / "model.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"never read")
    return folder


@pytest.fixture
def ask(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., BuildRequest]:
    (tmp_path / "packages" / "vllm").mkdir(parents=True)
    monkeypatch.setenv(PACKAGES_VARIABLE, str(tmp_path / "packages"))
    monkeypatch.setattr(generating, "LOAD_SECONDS", (0.1, 0.1))
    monkeypatch.setattr(generating, "REACH_SECONDS", (0.1, 0.1))
    (tmp_path / "store").mkdir()

    def make(rows: Sequence[dict[str, Any]] | None = None, **fields: Any) -> BuildRequest:
        rows = [{"prompt": f"prompt {one}", "max_tokens": 3} for one in range(PROMPTS)] if rows is None else rows
        (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return BuildRequest(**{
            "model_name": "m", "source": SourceRequest(uri=str(source)), "store_path": str(tmp_path / "store"),
            "accuracy": AccuracyRequest(metric="agreement", tolerance=0.15,
                                        evaluation=DataRequest(uri=str(tmp_path / "prompts.jsonl"))),
            "generate": GenerateRequest(), **fields})

    return make


class Silent:
    def progress(self, line: object) -> None: ...

    def outcome(self, outcome: Outcome) -> None: ...


def built(request: BuildRequest, scratch: Path, servers: Servers, budget: Budget | None = None) -> Outcome:
    scratch.mkdir()
    resolved, steps = resolve_model(request, scratch), Steps(Tracker(Silent()))
    return build_model(resolved, scratch, steps, budget or Budget(3000), servers)


def verdicts(outcome: Outcome) -> dict[str, str]:
    return {one.name: one.verdict for one in outcome.candidates}


def only_ngrams_answer(arguments: ServerArguments) -> dict[str, Any]:
    """All streams of the others fail, so that no clock says which serves best."""
    settings = (arguments.prefix_caching, arguments.max_num_seqs, arguments.max_num_batched_tokens, arguments.dtype)
    alone = settings == (None, None, None, "float32")
    return {"trouble": "" if arguments.speculative_tokens and alone else "event"}


def test_what_serves_better_and_agrees_is_published(ask: Callable[..., BuildRequest], tmp_path: Path) -> None:
    servers = Servers(only_ngrams_answer)
    request = ask()
    outcome = built(request, tmp_path / "scratch", servers)
    assert verdicts(outcome)["fp32, n-grams"] == "Shipped"
    assert verdicts(outcome)["fp32"] == "Passed"
    assert verdicts(outcome)["int4"] == "Skipped"
    folder = tmp_path / "store" / outcome.fingerprint
    manifest = verify(folder, outcome.fingerprint, manifest_digest=outcome.manifest_digest)
    assert {"serving.json", "smoke.json", "build-report.json", "report.html", "model/config.json",
            "model/tokenizer.json", "model/model.safetensors"} <= set(manifest.files)
    assert "model/pytorch_model.bin" not in manifest.files
    serving = read_serving(folder)
    assert serving.settings.speculative_tokens == 4
    assert "--generation-config=vllm" in serving.words
    assert serving.gate.passed
    assert serving.command(folder / "model", "mine").endswith("--served-model-name=mine " + " ".join(
        ["--generation-config=vllm", "--dtype=float32", "--tensor-parallel-size=1", "'--speculative-config="
         '{"method":"ngram","num_speculative_tokens":4}\'', "--enforce-eager"]))
    report = load(GenerateReport, (folder / "build-report.json").read_text())
    assert report.serving == serving
    assert report.confirmed
    assert report.prompts.count == PROMPTS
    page = (folder / "report.html").read_text()
    assert "fp32, n-grams" in page
    assert "http://" not in page.partition("<script")[0]


def test_the_outcome_says_in_tokens_what_was_published(ask: Callable[..., BuildRequest], tmp_path: Path) -> None:
    """What the operator reads: of the store's manifest, and of a Job's termination message."""
    outcome = built(ask(), tmp_path / "scratch", Servers(only_ngrams_answer))
    folder = tmp_path / "store" / outcome.fingerprint
    published, serving = outcome.generate, read_serving(folder)
    assert published is not None
    assert (published.name, published.server, published.server_version) == ("fp32, n-grams", "vllm", "0.0.1")
    assert (published.words, published.environment) == (serving.words, serving.environment)
    assert (published.accuracy, published.prompts) == (1.0, PROMPTS)
    assert 1 - 0.15 <= published.accuracy_low < 1, "so few prompts prove no more than the tolerance"
    assert (published.device_class, published.device_count, published.load_seconds) == ("cpu", 1, 1.0)
    assert published.tokens.concurrency == serving.load.concurrency
    assert published.tokens.output_rate == pytest.approx(serving.load.figures.output_rate, abs=0.01)
    shipped = next(one for one in outcome.candidates if one.verdict == "Shipped")
    assert shipped.tokens == published.tokens
    assert Manifest.from_json((folder / MANIFEST_FILE).read_text()).outcome.generate == published
    read = Outcome.from_json(outcome.to_termination_message())
    assert (read.generate, read.engine, read.serving) == (published, None, None)
    shown = io.StringIO()
    Terminal(shown).outcome(outcome)
    text = " ".join(shown.getvalue().split())
    assert "fp32, n-grams on vllm 0.0.1, built in" in text
    assert f"agreement ≥ {published.accuracy_low:.4f} on {PROMPTS} prompts" in text


def objective(percentile: float) -> dict[str, Any]:
    return {"generate": GenerateRequest(ttft_ms=60_000), "objective": ObjectiveRequest(latency_percentile=percentile)}


def test_an_objective_is_met_by_requests_that_came_after_the_choice(ask: Callable[..., BuildRequest],
                                                                    tmp_path: Path) -> None:
    outcome = built(ask(**objective(50)), tmp_path / "scratch", Servers(only_ngrams_answer))
    found = outcome.generate
    assert found is not None
    assert (found.objective_met, found.requests_to_show, found.too_few_requests) == (True, 0, False)
    assert found.requests >= requests_to_decide(50)
    page = (tmp_path / "store" / outcome.fingerprint / "report.html").read_text()
    assert f"It is met: when the load was put on once more, 0 of {found.requests} requests missed it." in page
    shipped = next(one for one in outcome.candidates if one.verdict == "Shipped")
    assert f"0 of {found.requests} requests missed the objective when the load was put on once more" in shipped.reason


def test_too_few_requests_leave_open_whether_an_objective_is_met(
        ask: Callable[..., BuildRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In no time as many are sent as were in flight: no level has as many as p99.9 takes."""
    monkeypatch.setattr(trial, "CONFIRM_SHARE", 0.0)
    outcome = built(ask(**objective(99.9)), tmp_path / "scratch", Servers(only_ngrams_answer))
    found, needed = outcome.generate, requests_to_show(99.9, 0)
    assert found is not None
    assert (found.objective_met, found.requests_to_show, found.too_few_requests) == (False, needed, True)
    assert 0 < found.requests <= 256
    report = (tmp_path / "store" / outcome.fingerprint / "build-report.json").read_text()
    assert f"it takes {needed:,} to say so. Write a larger buildBudgetSeconds" in report


def test_a_server_that_fails_when_it_is_started_once_more_keeps_no_objective(ask: Callable[..., BuildRequest],
                                                                             tmp_path: Path) -> None:
    """The default's streams fail, so n-grams lead and are to be confirmed: their server does not start again."""
    speculated: list[ServerArguments] = []

    def choose(arguments: ServerArguments) -> dict[str, Any]:
        found = only_ngrams_answer(arguments)
        if found["trouble"]:
            return found
        speculated.append(arguments)
        return {"error": UserError("ServerLoadFailed", "no memory")} if len(speculated) > 1 else found

    outcome = built(ask(**objective(50)), tmp_path / "scratch", Servers(choose))
    assert len(speculated) == 2
    assert outcome.generate is not None
    assert (outcome.generate.objective_met, outcome.generate.too_few_requests, outcome.generate.requests) == (
        False, False, 0)
    page = (tmp_path / "store" / outcome.fingerprint / "report.html").read_text()
    assert "It is missed: no load kept it." in page


def test_the_last_server_serves_what_is_measured_of_it_next(ask: Callable[..., BuildRequest], tmp_path: Path) -> None:
    """Nothing but the unquantised model is tried: its objective is kept at once."""
    servers = Servers(lambda arguments: {})
    request = ask(engine=EngineRequest(stop_when="objectiveMet"), **objective(50))
    outcome = built(request, tmp_path / "scratch", servers)
    assert outcome.generate is not None
    assert outcome.generate.requests >= requests_to_decide(50)
    assert len(servers.started) == 1


def test_the_default_ships_where_nothing_is_better(ask: Callable[..., BuildRequest], tmp_path: Path) -> None:
    started: list[ServerArguments] = []

    def choose(arguments: ServerArguments) -> dict[str, Any]:
        started.append(arguments)
        return {"trouble": "" if arguments == started[0] else "event"}

    outcome = built(ask(), tmp_path / "scratch", Servers(choose))
    assert verdicts(outcome)["fp32"] == "Shipped"
    assert verdicts(outcome)["fp32, n-grams"] == "Slower"
    assert verdicts(outcome)["fp32, no prefix cache"] == "Slower"


def test_what_chooses_other_tokens_is_refused_and_gets_no_load(ask: Callable[..., BuildRequest],
                                                               tmp_path: Path) -> None:
    def choose(arguments: ServerArguments) -> dict[str, Any]:
        return {"model": other if arguments.speculative_tokens else counting, "trouble": "event"}

    outcome = built(ask(), tmp_path / "scratch", Servers(choose))
    refused = next(one for one in outcome.candidates if one.name == "fp32, n-grams")
    assert refused.verdict == "AccuracyRefused"
    assert refused.accuracy == 0
    assert "100.00%" in refused.reason


def test_what_goes_wrong_after_the_beginning_of_answers_is_refused(ask: Callable[..., BuildRequest], tmp_path: Path,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole answers have 40 tokens of which the gate's first part sees 32. A third of them is wrong from there on."""
    monkeypatch.setattr(generating, "REACH_SECONDS", (1000.0, 1000.0))
    rows = [{"prompt": f"prompt {one:02}", "max_tokens": 40} for one in range(PROMPTS)]

    def late(tokens: Sequence[int]) -> dict[int, float]:
        return other(tokens) if len(tokens) >= len("prompt 00") + 32 else counting(tokens)

    def choose(arguments: ServerArguments) -> dict[str, Any]:
        return {"model": late if arguments.speculative_tokens else counting, "trouble": "event"}

    outcome = built(ask(rows), tmp_path / "scratch", Servers(choose))
    refused = next(one for one in outcome.candidates if one.name == "fp32, n-grams")
    assert refused.verdict == "AccuracyRefused"
    assert refused.accuracy == 1.0, "the beginnings are the same"
    assert refused.reason.startswith("in tokens 33 to 40 of answers with 256 requests at once, 100.00% of its next")
    report = tmp_path / "store" / outcome.fingerprint / "report.html"
    assert "Tokens 33 to 40" in report.read_text()


def test_what_the_gate_did_not_reach_stands_in_the_report(ask: Callable[..., BuildRequest], tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generating, "REACH_SECONDS", (0.0, 0.0))
    rows = [{"prompt": f"prompt {one:02}", "max_tokens": 40} for one in range(PROMPTS)]
    outcome = built(ask(rows), tmp_path / "scratch", Servers(only_ngrams_answer))
    folder = tmp_path / "store" / outcome.fingerprint
    report = load(GenerateReport, (folder / "build-report.json").read_text())
    answers = next(note for note in report.notes if "go on after their first 32 tokens" in note)
    assert answers.startswith("20 answers go on after their first 32 tokens. The gate compared 0 of them further")
    assert answers in (folder / "report.html").read_text()
    assert any("with up to 16 requests at once" in note for note in report.notes)


def test_what_does_not_start_is_named_with_its_first_error(ask: Callable[..., BuildRequest], tmp_path: Path) -> None:
    log = "vLLM ended with status 1: ValueError: no such kernel. Last lines of its log:\nINFO loading"

    def choose(arguments: ServerArguments) -> dict[str, Any]:
        return {"error": UserError("ServerLoadFailed", log)} if arguments.speculative_tokens else {"trouble": "event"}

    outcome = built(ask(), tmp_path / "scratch", Servers(choose))
    failed = next(one for one in outcome.candidates if one.name == "fp32, n-grams")
    assert (failed.verdict, failed.reason) == (
        "Failed", "vLLM ended with status 1: ValueError: no such kernel")


def test_what_there_is_no_time_for_is_not_started(ask: Callable[..., BuildRequest], tmp_path: Path) -> None:
    servers = Servers(lambda arguments: {"start_seconds": 500.0})
    outcome = built(ask(), tmp_path / "scratch", servers, Budget(505))
    assert len(servers.started) == 1
    assert verdicts(outcome)["fp32"] == "Shipped"
    skipped = next(one for one in outcome.candidates if one.name == "fp32, n-grams")
    assert skipped.verdict == "Skipped"
    assert "the time budget of 505 s leaves" in skipped.reason


def test_trials_leave_the_time_that_the_default_takes_once_more(ask: Callable[..., BuildRequest],
                                                                tmp_path: Path) -> None:
    """Of 500 s one more start of 300 s would be enough for a trial, and not for what follows it."""
    servers = Servers(lambda arguments: {"start_seconds": 300.0})
    outcome = built(ask(), tmp_path / "scratch", servers, Budget(500))
    assert len(servers.started) == 1
    skipped = next(one for one in outcome.candidates if one.name == "fp32, n-grams")
    assert "are for vLLM's own settings, which are measured again" in skipped.reason


def test_a_budget_that_ends_before_the_reference_has_answered_is_too_small(ask: Callable[..., BuildRequest],
                                                                           tmp_path: Path) -> None:
    with pytest.raises(UserError, match="before the unquantised model had answered 20 prompts") as caught:
        built(ask(), tmp_path / "scratch", Servers(lambda arguments: {"hangs": True}), Budget(10.1))
    assert caught.value.reason == "BudgetTooSmall"
    assert not list((tmp_path / "store").iterdir())


def test_what_the_store_has_is_not_built(ask: Callable[..., BuildRequest], tmp_path: Path) -> None:
    request = ask()
    outcome = built(request, tmp_path / "scratch", Servers(only_ngrams_answer))
    (tmp_path / "again").mkdir()
    hit = run_build(request, tmp_path / "again", Tracker(Silent()))
    assert hit.ok
    assert hit.cache_hit
    assert (hit.fingerprint, hit.manifest_digest) == (outcome.fingerprint, outcome.manifest_digest)


def test_it_is_signed_as_engines_are(ask: Callable[..., BuildRequest], tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "key").write_text("0" * 64)
    outcome = built(ask(signing_keys=str(tmp_path / "keys")), tmp_path / "scratch", Servers(only_ngrams_answer))
    manifest = json.loads((tmp_path / "store" / outcome.fingerprint / MANIFEST_FILE).read_text())
    assert len(manifest["signature"]["mac"]) == 64


@pytest.mark.parametrize(("rows", "fields", "reason", "said"), [
    ([], {}, "PromptsInvalid", "it holds no prompt"),
    (None, {"accuracy": AccuracyRequest(tolerance=0.15)}, "PromptsMissing", "none are given"),
    ([{"prompt": "one"}] * 30, {}, "EvaluationTooSmall", "1 prompts cannot prove"),
    (None, {"engine": EngineRequest(build_budget_seconds=0)}, "RequestInvalid", "Seconds: 0 is out of range"),
    (None, {"generate": GenerateRequest(ttft_ms=float("nan"))}, "RequestInvalid", "ttftMilliseconds: nan is out"),
    (None, {"generate": GenerateRequest(context_tokens=-1)}, "RequestInvalid", "contextTokens: -1 is out of range"),
    (None, {"source": SourceRequest(uri=__file__)}, "FormatUnknown", "the source is a file"),
])
def test_bad_input_is_refused_before_a_server_starts(rows: Sequence[dict[str, Any]] | None, fields: dict[str, Any],
                                                     reason: str, said: str, ask: Callable[..., BuildRequest],
                                                     tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said) as caught:
        resolve_model(ask(rows, **fields), tmp_path)
    assert caught.value.reason == reason
    assert caught.value.field
    assert caught.value.remedy


@pytest.mark.parametrize(("row", "fields", "reason", "said"), [
    ({"prompt": "x" * 510, "max_tokens": 3}, {}, "PromptTooLong", "prompt 21 has 510 tokens, and with an answer of 3 "
     "it is longer than the context of 512"),
    ({"prompt": "x" * 60}, {"generate": GenerateRequest(context_tokens=64)}, "PromptTooLong", "the context of 64"),
    ({"messages": [{"role": "system", "content": "x"}]}, {}, "TemplateFailed", "prompt 21.*only users"),
    ({"prompt": "x"}, {"generate": GenerateRequest(context_tokens=600)}, "ContextTooLong", "was made for 512"),
])
def test_prompts_that_the_model_cannot_read_are_refused_before_a_server_starts(
        row: dict[str, Any], fields: dict[str, Any], reason: str, said: str, ask: Callable[..., BuildRequest],
        tmp_path: Path) -> None:
    rows = [*({"prompt": f"prompt {one}", "max_tokens": 3} for one in range(PROMPTS)), row]
    servers = Servers(lambda arguments: {})
    with pytest.raises(UserError, match=said) as caught:
        built(ask(rows, **fields), tmp_path / "scratch", servers)
    assert caught.value.reason == reason
    assert caught.value.field
    assert caught.value.remedy
    assert not servers.started


def test_without_vllm_its_place_is_named(ask: Callable[..., BuildRequest], tmp_path: Path,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    request = ask()
    monkeypatch.delenv(PACKAGES_VARIABLE)
    error = run_build(request, tmp_path, Tracker(Silent())).error
    assert error is not None
    assert (error.reason, error.field) == ("VllmMissing", PACKAGES_VARIABLE)
    assert run_resolve(request, tmp_path, Tracker(Silent())).ok, "what looks at the source needs no server"


def test_a_first_half_needs_no_server_and_a_second_one_nothing_else(
        ask: Callable[..., BuildRequest], source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own"
    shutil.copytree(source, own)
    request, folder = ask(source=SourceRequest(uri=str(own))), tmp_path / "left"
    monkeypatch.delenv(PACKAGES_VARIABLE)
    assert run_finalists(request, tmp_path, Tracker(Silent()), folder) is None
    shutil.rmtree(own)
    (tmp_path / "prompts.jsonl").unlink()
    outcome = run_proof(folder, None, Tracker(Silent()), Servers(only_ngrams_answer))
    assert outcome.error is None
    assert outcome.generate is not None
    assert outcome.generate.name == "fp32, n-grams"
    published = tmp_path / "store" / outcome.fingerprint
    verify(published, outcome.fingerprint, manifest_digest=outcome.manifest_digest)
    report = load(GenerateReport, (published / "build-report.json").read_text())
    assert report.source_uri == str(own), "where it came from, not where it was left"
    assert {"resolve", "ladder", "sweep"} <= report.steps.keys()
    assert sorted(one.name for one in folder.iterdir()) == ["language-model.json", "model", "prompts"]


def test_what_is_left_is_what_is_proven(ask: Callable[..., BuildRequest], tmp_path: Path) -> None:
    folder = tmp_path / "left"
    assert run_finalists(ask(), tmp_path, Tracker(Silent()), folder) is None
    (folder / "prompts").write_text('{"prompt": "another"}')
    outcome = run_proof(folder, None, Tracker(Silent()), Servers(only_ngrams_answer))
    assert outcome.error is not None
    assert (outcome.error.reason, outcome.error.field) == ("DigestMismatch", "spec.accuracy.evaluation.digest")


def test_what_the_store_has_is_not_proven(ask: Callable[..., BuildRequest], tmp_path: Path) -> None:
    request, folder = ask(), tmp_path / "left"
    built(request, tmp_path / "scratch", Servers(only_ngrams_answer))
    hit = run_finalists(request, tmp_path / "again", Tracker(Silent()), folder)
    assert hit is not None
    assert hit.cache_hit
    assert (folder / OUTCOME_FILE).is_file()
    assert run_proof(folder, None, Tracker(Silent())) == hit


def test_a_model_of_tensors_is_not_proven_without_a_repository(tmp_path: Path) -> None:
    error = run_proof(tmp_path, None, Tracker(Silent())).error
    assert error is not None
    assert (error.reason, error.field) == ("RequestInvalid", "--repository")


def test_repeated_prompts_count_once(ask: Callable[..., BuildRequest], tmp_path: Path) -> None:
    rows = [{"prompt": f"prompt {one % 20}", "max_tokens": 3} for one in range(25)]
    resolved = resolve_model(ask(rows), tmp_path)
    assert [one.prompt for one in resolved.asks] == [f"prompt {one}" for one in range(20)]
    assert resolved.notes == ("5 of 25 prompts are there more than once: they count once",)


@pytest.fixture
def checkpoint(source: Path, tmp_path: Path) -> Path:
    """The source's weights in two files."""
    folder = tmp_path / "awq"
    shutil.copytree(source, folder)
    (folder / "model.safetensors").unlink()
    for number in (1, 2):
        save_file({f"weight{number}": np.zeros(4, np.float32)}, folder / f"model-{number}.safetensors")
    return folder


def listing(**places: str | Path) -> GenerateRequest:
    return GenerateRequest(checkpoints=tuple(CheckpointRequest(name=name, uri=str(uri))
                                             for name, uri in places.items()))


def test_a_checkpoint_that_serves_better_ships_with_its_own_files(
        ask: Callable[..., BuildRequest], checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In two halves, as a pod has it: what the first one left is all that the second one has."""
    request, folder = ask(generate=listing(awq=checkpoint)), tmp_path / "left"
    monkeypatch.delenv(PACKAGES_VARIABLE)
    resolved = run_resolve(request, tmp_path, Tracker(Silent()))
    assert resolved.source is not None
    assert resolved.source.checkpoint_digests.keys() == {"awq"}
    assert run_finalists(request, tmp_path, Tracker(Silent()), folder) is None
    shutil.rmtree(checkpoint)
    servers = Servers(lambda arguments: {"trouble": "event"},
                      lambda folder: {"trouble": ""} if folder.name == "awq" else {})
    outcome = run_proof(folder, None, Tracker(Silent()), servers)
    assert outcome.error is None
    assert outcome.generate is not None
    assert outcome.generate.name.startswith("checkpoint awq")
    assert outcome.generate.checkpoint == "awq"
    assert outcome.fingerprint == resolved.fingerprint
    published = tmp_path / "store" / outcome.fingerprint
    assert {"model/model-1.safetensors", "model/model-2.safetensors"} <= set(
        verify(published, outcome.fingerprint, manifest_digest=outcome.manifest_digest).files)
    assert not (published / "model" / "model.safetensors").exists()
    assert outcome.generate.size_bytes == sum(
        one.stat().st_size for one in (folder / "checkpoints" / "awq").rglob("*") if one.is_file())
    assert read_serving(published).checkpoint == "awq"
    report = load(GenerateReport, (published / "build-report.json").read_text())
    assert [(one.name, one.uri, one.digest) for one in report.checkpoints] == [
        ("awq", str(checkpoint), resolved.source.checkpoint_digests["awq"])]
    assert any("those of checkpoint awq" in note for note in report.notes)


@pytest.mark.parametrize(("broken", "said"), [
    ({"model": other}, "100.00% of its next tokens differ"),
    ({"reads": 1}, "its tokeniser or chat template differs"),
    ({"template": "Sure: "}, "it reads a conversation as other tokens from place 0 on"),
], ids=["weights", "tokeniser", "template that no prompt of the user shows"])
def test_a_broken_checkpoint_is_refused_and_the_source_ships(
        broken: dict[str, Any], said: str, ask: Callable[..., BuildRequest], checkpoint: Path,
        tmp_path: Path) -> None:
    servers = Servers(lambda arguments: {"trouble": "event"}, lambda folder: broken if folder.name == "awq" else {})
    outcome = built(ask(generate=listing(awq=checkpoint)), tmp_path / "scratch", servers)
    refused = next(one for one in outcome.candidates if one.name == "checkpoint awq")
    assert refused.verdict == "AccuracyRefused", refused.reason
    assert said in refused.reason
    assert outcome.generate is not None
    assert outcome.generate.checkpoint == ""
    assert (tmp_path / "store" / outcome.fingerprint / "model" / "model.safetensors").is_file()


def test_a_checkpoint_without_kernels_fails_alone(ask: Callable[..., BuildRequest], checkpoint: Path,
                                                  tmp_path: Path) -> None:
    error = UserError("ServerLoadFailed", "vLLM ended with status 1: ValueError: awq is not supported")
    servers = Servers(lambda arguments: {"trouble": "event"},
                      lambda folder: {"error": error} if folder.name == "awq" else {})
    outcome = built(ask(generate=listing(awq=checkpoint)), tmp_path / "scratch", servers)
    failed = next(one for one in outcome.candidates if one.name == "checkpoint awq")
    assert (failed.verdict, failed.reason) == ("Failed", error.message)
    assert outcome.ok


def _settings(folder: Path, **changed: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))


@pytest.mark.parametrize(("spoil", "reason", "said"), [
    (lambda folder: _settings(folder, vocab_size=300), "CheckpointMismatch", "300 tokens, and the source's 257"),
    (lambda folder: _settings(folder, architectures=["GPT2LMHeadModel"]), "CheckpointMismatch", "GPT2LMHeadModel"),
    (lambda folder: _settings(folder, max_position_embeddings=64), "CheckpointMismatch", "for 64 tokens, and 512"),
    (lambda folder: (folder / "generation_config.json").write_text('{"eos_token_id": [256, 7]}'), "CheckpointMismatch",
     "end at token 7, 256, and the source's at the tokeniser's own token"),
    (lambda folder: _settings(folder, auto_map={"AutoModel": "m.M"}), "UnsupportedModel", "checkpoint awq: "),
    (lambda folder: (folder / "model-2.safetensors").write_bytes(b"cut"), "SourceCorrupt", "checkpoint awq: "),
    (lambda folder: (folder / "tokenizer.json").unlink(), "SourceCorrupt", "no tokeniser"),
    (lambda folder: [one.unlink() for one in folder.glob("*.safetensors")], "FormatUnknown", "no *.safetensors"),
    (shutil.rmtree, "SourceNotFound", "awq"),
], ids=["vocabulary", "architecture", "context", "ends", "code", "cut", "tokeniser", "weights", "gone"])
def test_a_checkpoint_that_does_not_fit_is_refused_by_its_field(
        spoil: Callable[[Path], Any], reason: str, said: str, ask: Callable[..., BuildRequest], checkpoint: Path,
        tmp_path: Path) -> None:
    spoil(checkpoint)
    with pytest.raises(UserError) as caught:
        resolve_model(ask(generate=listing(awq=checkpoint)), tmp_path / "scratch")
    assert said in caught.value.message
    assert (caught.value.reason, caught.value.field) == (reason, "spec.engine.checkpoints[0].uri")
    assert caught.value.remedy


@pytest.mark.parametrize(("listed", "field", "said"), [
    ([("a/b", "x")], "[0].name", "cannot name a checkpoint"), ([("..", "x")], "[0].name", "cannot name"),
    ([("a", "x"), ("a", "y")], "[1].name", "two checkpoints have the name a"),
    ([(f"c{one}", "x") for one in range(9)], "", "9 checkpoints are too many")])
def test_names_of_checkpoints_are_checked(listed: list[tuple[str, str]], field: str, said: str,
                                          ask: Callable[..., BuildRequest], tmp_path: Path) -> None:
    wishes = GenerateRequest(checkpoints=tuple(CheckpointRequest(name=name, uri=uri) for name, uri in listed))
    with pytest.raises(UserError, match=said) as caught:
        resolve_model(ask(generate=wishes), tmp_path / "scratch")
    assert (caught.value.reason, caught.value.field) == ("RequestInvalid", f"spec.engine.checkpoints{field}")


@pytest.fixture
def draft(source: Path, tmp_path: Path) -> Path:
    """A model of less weights than the source."""
    folder = tmp_path / "tiny"
    shutil.copytree(source, folder)
    save_file({"weight": np.zeros(2, np.float32)}, folder / "model.safetensors")
    return folder


def drafting(**places: str | Path) -> GenerateRequest:
    return GenerateRequest(drafts=tuple(CheckpointRequest(name=name, uri=str(uri)) for name, uri in places.items()))


def only_the_draft_answers(arguments: ServerArguments) -> dict[str, Any]:
    return {"trouble": "" if arguments.draft and only_ngrams_answer(arguments)["trouble"] == "" else "event"}


def test_a_draft_that_serves_better_ships_beside_the_sources_files(
        ask: Callable[..., BuildRequest], source: Path, draft: Path, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    """In two halves, as a pod has it: what the first one left is all that the second one has."""
    request, folder = ask(generate=drafting(small=draft)), tmp_path / "left"
    monkeypatch.delenv(PACKAGES_VARIABLE)
    resolved = run_resolve(request, tmp_path, Tracker(Silent()))
    assert resolved.source is not None
    assert resolved.source.draft_digests.keys() == {"small"}
    assert run_finalists(request, tmp_path, Tracker(Silent()), folder) is None
    shutil.rmtree(draft)
    servers = Servers(only_the_draft_answers)
    outcome = run_proof(folder, None, Tracker(Silent()), servers)
    assert outcome.error is None
    assert outcome.generate is not None
    assert servers.drafts == {folder / "drafts" / "small"}
    assert (outcome.generate.name, outcome.generate.draft, outcome.generate.checkpoint) == (
        "draft small, 4 tokens", "small", "")
    assert outcome.fingerprint == resolved.fingerprint
    published = tmp_path / "store" / outcome.fingerprint
    files = verify(published, outcome.fingerprint, manifest_digest=outcome.manifest_digest).files
    assert {"model/model.safetensors", "draft/model.safetensors", "draft/config.json"} <= set(files)
    assert "draft/pytorch_model.bin" not in files
    sizes = [sum(one.stat().st_size for one in place.rglob("*") if one.is_file())
             for place in (folder / "model", folder / "drafts" / "small")]
    assert outcome.generate.size_bytes == sum(sizes)
    assert f'"model":"{published}/draft"' in read_serving(published).command(published / "model", "mine")
    report = load(GenerateReport, (published / "build-report.json").read_text())
    assert [(one.name, one.uri, one.digest) for one in report.drafts] == [
        ("small", str(draft), resolved.source.draft_digests["small"])]
    assert any("Draft small ships" in note for note in report.notes)


def test_a_draft_that_the_server_does_not_take_fails_alone(ask: Callable[..., BuildRequest], draft: Path,
                                                           tmp_path: Path) -> None:
    error = UserError("ServerLoadFailed", "vLLM ended with status 1: NotImplementedError: no draft models here")
    outcome = built(ask(generate=drafting(small=draft)), tmp_path / "scratch",
                    Servers(lambda arguments: {"error": error} if arguments.draft else {}))
    failed = next(one for one in outcome.candidates if one.name == "draft small, 4 tokens")
    assert (failed.verdict, failed.reason) == ("Failed", error.message)
    assert outcome.generate is not None
    assert not (tmp_path / "store" / outcome.fingerprint / "draft").exists()


def test_a_draft_that_changes_the_answers_is_refused(ask: Callable[..., BuildRequest], draft: Path,
                                                     tmp_path: Path) -> None:
    outcome = built(ask(generate=drafting(small=draft)), tmp_path / "scratch",
                    Servers(lambda arguments: {"model": other if arguments.draft else counting}))
    refused = next(one for one in outcome.candidates if one.name == "draft small, 4 tokens")
    assert refused.verdict == "AccuracyRefused"
    assert "100.00% of its next tokens differ" in refused.reason


def _renamed(folder: Path, old: str, new: str) -> None:
    file = folder / "tokenizer.json"
    whole = json.loads(file.read_text())
    vocabulary = whole["model"]["vocab"]
    vocabulary[new] = vocabulary.pop(old)
    file.write_text(json.dumps(whole))


def _sentencepiece(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.model").write_bytes(b"pieces")


@pytest.mark.parametrize(("spoil", "reason", "said"), [
    (lambda folder: _settings(folder, vocab_size=300), "DraftMismatch", "300 tokens, and the source's 257"),
    (lambda folder: _renamed(folder, "A", "AA"), "DraftMismatch", "is 'AA', and 'A' of the source"),
    (_sentencepiece, "DraftMismatch", "save both as tokenizer.json"),
    (lambda folder: save_file({"weight": np.zeros(4, np.float32)}, folder / "model.safetensors"), "DraftMismatch",
     "no less time"),
    (lambda folder: (folder / "tokenizer.json").write_text("{}"), "SourceCorrupt", "tokenizer.json cannot be read"),
    (lambda folder: _settings(folder, auto_map={"AutoModel": "m.M"}), "UnsupportedModel", "draft small: "),
    (lambda folder: _settings(folder, architectures=["BertModel"]), "UnsupportedModel", "draft small: "),
    (lambda folder: (folder / "model.safetensors").write_bytes(b"cut"), "SourceCorrupt", "draft small: "),
    (shutil.rmtree, "SourceNotFound", "tiny"),
], ids=["vocabulary", "token", "tokeniser", "size", "unreadable", "code", "no-language-model", "cut", "gone"])
def test_a_draft_that_does_not_fit_is_refused_by_its_field(
        spoil: Callable[[Path], Any], reason: str, said: str, ask: Callable[..., BuildRequest], draft: Path,
        tmp_path: Path) -> None:
    spoil(draft)
    with pytest.raises(UserError) as caught:
        resolve_model(ask(generate=drafting(small=draft)), tmp_path / "scratch")
    assert said in caught.value.message
    assert (caught.value.reason, caught.value.field) == (reason, "spec.engine.drafts[0].uri")
    assert caught.value.remedy


def test_a_draft_may_be_of_another_architecture_and_a_shorter_context(ask: Callable[..., BuildRequest], draft: Path,
                                                                      tmp_path: Path) -> None:
    """vLLM goes on without proposals where a text is longer than the draft reads."""
    _settings(draft, architectures=["GPT2LMHeadModel"], max_position_embeddings=64)
    resolved = resolve_model(ask(generate=drafting(small=draft)), tmp_path / "scratch")
    assert resolved.drafts["small"].context == 64


@pytest.mark.parametrize(("listed", "field", "said"), [
    ([("a/b", "x")], "[0].name", "cannot name a draft"), ([("a", "x"), ("a", "y")], "[1].name", "two drafts have"),
    ([(f"d{one}", "x") for one in range(5)], "", "5 drafts are too many")])
def test_names_of_drafts_are_checked(listed: list[tuple[str, str]], field: str, said: str,
                                     ask: Callable[..., BuildRequest], tmp_path: Path) -> None:
    wishes = GenerateRequest(drafts=tuple(CheckpointRequest(name=name, uri=uri) for name, uri in listed))
    with pytest.raises(UserError, match=said) as caught:
        resolve_model(ask(generate=wishes), tmp_path / "scratch")
    assert (caught.value.reason, caught.value.field) == ("RequestInvalid", f"spec.engine.drafts{field}")


def test_the_reports_command_says_what_was_asked_for(ask: Callable[..., BuildRequest]) -> None:
    request = ask(source=SourceRequest(uri="/m"), engine=EngineRequest(build_budget_seconds=600),
                  generate=GenerateRequest(ttft_ms=500, context_tokens=256))
    words = command(request).split()
    assert words[:5] == ["enginewright-build", "--task", "generate", "--model", "/m"]
    assert words[-10:] == ["--tolerance", "0.15", "--ttft-ms", "500", "--context", "256", "--budget-seconds", "600",
                           "--output", "DIR"]


def test_prompts_are_kept_for_the_monitor_where_they_are_asked_for(ask: Callable[..., BuildRequest],
                                                                   tmp_path: Path) -> None:
    outcome = built(ask(keep_reference=True), tmp_path / "scratch", Servers(lambda arguments: {}))
    folder = Path(tmp_path / "store") / outcome.fingerprint
    verify(folder, outcome.fingerprint, manifest_digest=outcome.manifest_digest)
    found = read_prompts(folder / REFERENCE_FOLDER)
    assert (len(found.prompts), found.tolerance, found.floor) == (PROMPTS, 0.15, 0.0)
    assert [len(one.tokens) for one in found.prompts] == [3] * PROMPTS
