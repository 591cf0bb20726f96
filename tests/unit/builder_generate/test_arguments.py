"""Settings of vLLM as words of its command line, and what none can be started with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from enginewright_builder.errors import UserError
from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.packages import PACKAGES_VARIABLE, packages
from enginewright_builder.generate.server import VllmServer
from enginewright_builder.running import Running
from enginewright_builder.triton.client import Server


def test_what_is_left_out_is_left_to_vllm() -> None:
    assert ServerArguments().words() == ["--dtype=auto", "--tensor-parallel-size=1"]
    assert ServerArguments().environment() == {}


def test_each_setting_has_its_word_in_one_order() -> None:
    settings = ServerArguments(dtype="bfloat16", quantization="fp8", kv_cache_dtype="fp8", tensor_parallel_size=2,
                               max_model_len=4096, max_num_seqs=64, max_num_batched_tokens=8192, prefix_caching=True,
                               chunked_prefill=False, memory_share=0.9, cache_gib=4, threads=2,
                               speculative_tokens=3, enforce_eager=True)
    assert settings.checked().words() == [
        "--dtype=bfloat16", "--quantization=fp8", "--kv-cache-dtype=fp8", "--tensor-parallel-size=2",
        "--max-model-len=4096", "--max-num-seqs=64", "--max-num-batched-tokens=8192", "--enable-prefix-caching",
        "--no-enable-chunked-prefill", "--gpu-memory-utilization=0.9",
        '--speculative-config={"method":"ngram","num_speculative_tokens":3}', "--enforce-eager"]
    assert settings.environment() == {"VLLM_CPU_KVCACHE_SPACE": "4", "OMP_NUM_THREADS": "2",
                                      "TORCH_COMPILE_DISABLE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                                      "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}


def test_a_draft_is_named_by_the_place_that_each_machine_fills_in(tmp_path: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vllm").mkdir()
    monkeypatch.setenv(PACKAGES_VARIABLE, str(tmp_path))
    arguments = ServerArguments(speculative_tokens=3, draft="small")
    assert arguments.words()[-1] == (
        '--speculative-config={"method":"draft_model","model":"{draft}","num_speculative_tokens":3}')
    server = VllmServer(tmp_path, arguments, draft=tmp_path / "eagle-3")
    (word,) = (one for one in server.command(1) if one.startswith("--speculative-config="))
    place = Path(json.loads(word.partition("=")[2])["model"])
    assert (place.is_absolute(), place.name) == (True, "draft")


def test_a_gpus_server_compiles_and_says_nothing_of_a_cpu() -> None:
    assert ServerArguments(dtype="bfloat16", memory_share=0.9).environment() == {}


def test_differences_name_both_sides() -> None:
    assert ServerArguments(max_num_seqs=8).differences(ServerArguments(dtype="float32")) == {
        "dtype": ("auto", "float32"), "max_num_seqs": (8, None)}


@pytest.mark.parametrize(("field", "settings"), [
    ("max_num_seqs", ServerArguments(max_num_seqs=0)),
    ("cache_gib", ServerArguments(cache_gib=-1)),
    ("memory_share", ServerArguments(memory_share=1.5)),
    ("max_num_batched_tokens",
     ServerArguments(chunked_prefill=False, max_model_len=2048, max_num_batched_tokens=1024))])
def test_what_cannot_be_started_is_refused_by_its_field(field: str, settings: ServerArguments) -> None:
    with pytest.raises(UserError) as caught:
        settings.checked()
    assert (caught.value.reason, caught.value.field) == ("ServerArgumentInvalid", field)
    assert caught.value.remedy


def test_a_server_takes_no_credentials_and_no_defaults_of_the_folder(tmp_path: Path,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vllm").mkdir()
    monkeypatch.setenv(PACKAGES_VARIABLE, str(tmp_path))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not for it")
    monkeypatch.setenv("VLLM_CACHE_ROOT", "/cache")
    server = VllmServer(tmp_path, ServerArguments(cache_gib=1))
    assert "AWS_SECRET_ACCESS_KEY" not in server.environment()
    assert server.environment()["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert server.environment()["VLLM_CACHE_ROOT"] == "/cache"
    assert {"--generation-config=vllm", "--port=1"} <= set(server.command(1))
    assert "--trust-remote-code" not in server.command(1)


def test_without_vllm_the_variable_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(PACKAGES_VARIABLE, str(tmp_path))
    with pytest.raises(UserError, match="there is no vLLM here") as caught:
        packages()
    assert (caught.value.reason, caught.value.field, caught.value.value) == (
        "VllmMissing", PACKAGES_VARIABLE, str(tmp_path))


def test_both_servers_are_of_the_protocol(tmp_path: Path) -> None:
    """For mypy: that each has what the protocol asks for is checked where the types are."""
    def kinds() -> tuple[type[Running], type[Running]]:
        return Server, VllmServer

    assert len(kinds()) == 2
