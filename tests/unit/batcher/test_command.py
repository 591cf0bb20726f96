"""``enginewright adapt``: what it is given, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.cli import EXIT_USAGE, main
from enginewright.core.batching import SafeSet, Setting
from enginewright.core.batching.wire import safe_set_from_text, safe_set_to_text

SAFE = SafeSet(default=Setting(delay_us=500, preferred=(4,)), curve=((1, 0.004), (16, 0.009)), max_batch=16,
               longest_delay_us=18_000, load_seconds=3.0, objective_seconds=0.012, allowed=0.05)


@given(delay=st.integers(0, 10**7), seconds=st.floats(1e-6, 1e3), objective=st.none() | st.floats(1e-3, 10.0))
def test_what_the_operator_writes_is_read_as_it_was(delay: int, seconds: float, objective: float | None) -> None:
    safe = replace(SAFE, longest_delay_us=delay, load_seconds=seconds, objective_seconds=objective)
    assert safe_set_from_text(safe_set_to_text(safe)) == safe


@pytest.mark.parametrize(("text", "said"), [
    ("", "Invalid JSON"), ("{}", "default: Field required"),
    (safe_set_to_text(replace(SAFE, curve=SAFE.curve[:1])), "a curve of at least two batches"),
    (safe_set_to_text(SAFE).replace("16", '"x"', 1), "valid integer"),
])
def test_a_safe_set_that_makes_no_sense(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "key"
    key.write_text("secret")
    assert main(["adapt", "--model=m", f"--safe-set={text}", f"--key-file={key}"]) == EXIT_USAGE
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("content", "said"), [(None, "No such file"), ("\n", "holds no key")])
def test_without_a_key_nothing_starts(
    content: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "key"
    if content is not None:
        key.write_text(content)
    assert main(["adapt", "--model=m", f"--safe-set={safe_set_to_text(SAFE)}", f"--key-file={key}"]) == EXIT_USAGE
    assert said in capsys.readouterr().err
