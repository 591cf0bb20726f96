"""Sources of language models: what is recognised, what its digest is over, and what is refused by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from enginewright_builder.errors import UserError
from enginewright_builder.sources.causal import locate_causal
from enginewright_builder.sources.digest import content_digest

CONFIG = {"architectures": ["LlamaForCausalLM"], "vocab_size": 100, "max_position_embeddings": 64}
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def folder(at: Path, config: Mapping[str, Any] = CONFIG, files: Mapping[str, str | None] | None = None) -> Path:
    """A source; ``files`` are written over, or left out where None."""
    save_file({"weight": np.zeros(4, np.float32)}, at / "model.safetensors")
    texts = {"config.json": json.dumps(config), "tokenizer.json": "{}", "tokenizer_config.json": "{}",
             "chat_template.jinja": TEMPLATE, **(files or {})}
    for name, text in texts.items():
        if text is not None:
            (at / name).write_text(text)
    return at


def test_a_causal_folder(tmp_path: Path) -> None:
    found = locate_causal(folder(tmp_path))
    assert (found.architecture, found.vocabulary, found.context) == ("LlamaForCausalLM", 100, 64)
    assert (found.quantised, found.chat) == ("", True)


@pytest.mark.parametrize(("config", "files", "quantised", "chat"), [
    ({"quantization_config": {"quant_method": "fp8"}}, {}, "fp8", True),
    ({"quantization_config": {}}, {}, "unknown", True),
    ({"architectures": ["GPT2LMHeadModel"]}, {"chat_template.jinja": None}, "", False),
    ({}, {"chat_template.jinja": None, "tokenizer_config.json": json.dumps({"chat_template": TEMPLATE})}, "", True),
    ({}, {"chat_template.jinja": "{%- for m in messages %}{% generation %}{{ m }}{% endgeneration %}{% break %}"
                                 "{% endfor %}"}, "", True)])
def test_what_is_told_of_it(config: Mapping[str, Any], files: Mapping[str, str | None], quantised: str, chat: bool,
                            tmp_path: Path) -> None:
    found = locate_causal(folder(tmp_path, {**CONFIG, **config}, files))
    assert (found.quantised, found.chat) == (quantised, chat)


@pytest.mark.parametrize(("config", "files", "ends"), [
    ({}, {}, set()), ({"eos_token_id": 2}, {}, {2}), ({"eos_token_id": [2, 7]}, {}, {2, 7}),
    ({"eos_token_id": "</s>"}, {}, set()), ({"eos_token_id": True}, {}, set()),
    ({"eos_token_id": 2}, {"generation_config.json": '{"eos_token_id": [2, 9]}'}, {2, 9}),
    ({"eos_token_id": 2}, {"generation_config.json": "{}"}, set())])
def test_tokens_that_end_a_text_are_those_for_generation(config: Mapping[str, Any], files: Mapping[str, str],
                                                         ends: set[int], tmp_path: Path) -> None:
    assert locate_causal(folder(tmp_path, {**CONFIG, **config}, files)).ends == ends


@pytest.mark.parametrize(("config", "files", "reason", "said"), [
    ({"architectures": ["BertForMaskedLM"]}, {}, "UnsupportedModel", "config.json names BertForMaskedLM"),
    ({"architectures": []}, {}, "UnsupportedModel", "names no architecture"),
    ({"is_encoder_decoder": True}, {}, "UnsupportedModel", "no causal language model"),
    ({"auto_map": {"AutoModelForCausalLM": "modeling.Own"}}, {}, "UnsupportedModel", "auto_map"),
    ({}, {"tokenizer_config.json": '{"auto_map": {"AutoTokenizer": ["own.Tokenizer", null]}}'}, "UnsupportedModel",
     "tokeniser needs Python code of its own"),
    ({}, {"adapter_config.json": "{}"}, "UnsupportedModel", "the folder is an adapter"),
    ({}, {"tokenizer.json": None}, "SourceCorrupt", "no tokeniser"),
    ({}, {"tokenizer_config.json": "["}, "SourceCorrupt", "tokenizer_config.json"),
    ({}, {"chat_template.jinja": "{% for %}"}, "SourceCorrupt", "the chat template fails in line 1"),
    ({"vocab_size": "many"}, {}, "SourceCorrupt", "vocab_size in config.json is 'many'"),
    ({}, {"config.json": None}, "FormatUnknown", "no config.json")])
def test_what_is_refused_by_name(config: Mapping[str, Any], files: Mapping[str, str | None], reason: str, said: str,
                                 tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said) as caught:
        locate_causal(folder(tmp_path, {**CONFIG, **config}, files))
    assert caught.value.reason == reason
    assert "torch.export" not in caught.value.remedy
    assert ("spec.task: infer" in caught.value.remedy) == ("config.json names" in said or "no causal" in said
                                                          or "names no" in said)


def test_weights_that_are_a_pickle_alone_are_refused(tmp_path: Path) -> None:
    folder(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "elsewhere")
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02}q\x00.")
    with pytest.raises(UserError) as caught:
        locate_causal(tmp_path)
    assert caught.value.reason == "PickleRefused"


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer.json", "tokenizer_config.json", "config.json"])
def test_tokeniser_and_template_are_part_of_the_digest(name: str, tmp_path: Path) -> None:
    before = content_digest(folder(tmp_path))
    (tmp_path / name).write_text((tmp_path / name).read_text() + " ")
    assert content_digest(tmp_path) != before
