"""The first page: its commands, its figures and its pictures are those of this repository."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pytest

from docs import pictures

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()
BENCHMARKS = ROOT / "docs" / "benchmarks"


def measured(name: str) -> Any:
    return json.loads((BENCHMARKS / name).read_text())


def test_two_commands_are_enough_on_a_fresh_machine() -> None:
    block = re.search(r"## Two commands\n\nOn a Debian 12 machine, as root, .*?```sh\n(.*?)```", README, re.DOTALL)
    assert block
    assert [line.partition("#")[0].strip() for line in block[1].splitlines()] == ["make demo", "make test"]


def test_engines_are_as_fast_as_the_figures_say() -> None:
    page = (BENCHMARKS / "product.md").read_text()
    eager, compiled = (re.search(rf"^\| over {name}, geometric mean \| ([0-9.]+)×", page, re.MULTILINE)
                       for name in ("eager FP32", "torch.compile FP16 with CUDA graphs"))
    assert eager
    assert compiled
    assert f"**{float(eager[1]):.1f} ×** and **{float(compiled[1]):.2f} ×** over the eight that the" in README


def test_engines_of_models_that_the_builder_did_not_know_are_as_fast_as_the_figures_say() -> None:
    models = measured("product-untuned.json")["models"]
    eager, compiled = (geometric_mean(gain for model in models for gain in model[over].values())
                       for over in ("over_eager_fp32", "over_compile_graphs"))
    assert len(models) == 7
    assert f"**{eager:.1f} ×** eager PyTorch in FP32, **{compiled:.2f} ×** `torch.compile` in FP16 with CUDA " \
           "graphs | Geometric means over seven models" in README


def test_the_gate_is_as_strict_as_the_figures_say() -> None:
    found = measured("gate.json")
    assert f"**{found['sabotaged']['passed']} of {found['sabotaged']['counted']:,}** | sabotaged engines pass" in README
    sound = found["sound"]
    assert f"refuses {sound['counted'] - sound['passed']} of {sound['counted']:,} sound ones" in README


def test_rollouts_lose_as_few_requests_as_the_figures_say() -> None:
    found = measured("rollouts.json")["summary"]
    assert f"**{found['requests']:,} requests, {found['failed']} failed** | through {found['rollouts']} good and " \
           f"{found['rollbacks']} bad revisions" in README
    assert f"{found['retried']} were sent a second time" in README
    assert f"{found['retried']} were sent a second time" in (BENCHMARKS / "README.md").read_text()


def test_the_explanation_is_that_of_the_run_that_the_picture_shows() -> None:
    told = (ROOT / "docs" / "img" / "explain.txt").read_text()
    assert f"```text\n{pictures.COMMAND}{told}```\n" in README
    assert (ROOT / "docs" / "img" / "report.png").read_bytes().startswith(b"\x89PNG")


def test_a_new_run_replaces_the_explanation_and_nothing_else() -> None:
    readme = f"a\n```text\n{pictures.COMMAND}old\n\nlines\n```\nb\n```sh\nc\n```\n"
    assert pictures.with_explanation(readme, "new\n") == f"a\n```text\n{pictures.COMMAND}new\n```\nb\n```sh\nc\n```\n"


def test_a_page_without_the_block_is_refused() -> None:
    with pytest.raises(ValueError, match="explain minilm"):
        pictures.with_explanation("nothing", "new\n")
