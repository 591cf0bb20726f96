"""Pages of metrics that a pod gives, and what it says of its model and answers to a probe: read, or refused with the
error that each reader names, and then without a word of the page."""

from __future__ import annotations

import json
import math
import string
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from enginewright.clients.page import MOST_SAMPLES, samples
from enginewright.clients.signals import NoSignalError
from enginewright.clients.triton import FAILURES, MISTAKEN, SUMMARY, parse_metrics
from enginewright.core.probe import ProbeError, make_request, match, read_answer
from enginewright.core.servers.triton import TRITON
from enginewright_builder.contract import ContractError, QualityReport

MARK = "swordfish"
READ = (TRITON.metrics.pending, FAILURES, MISTAKEN, TRITON.metrics.successes, TRITON.metrics.busy, SUMMARY)
NAMES = st.sampled_from([*READ, f"{SUMMARY}_count", "other_metric", "_"])
LABELS = st.sampled_from(["model", "version", "reason", "quantile", "gpu_uuid", MARK])
# As the exposition format has values: any text, with three signs escaped.
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]) | st.just("\n"), max_size=8)
NUMBERS = st.sampled_from(["0", "1", "12.5", "1e3", "NaN", "nan", "1.", "00"]) | st.floats(0, 1e18).map(repr)
ODD = st.sampled_from(["-1", "+Inf", "1e400", "1e19", "0x1", "1_0", "", "1 2 3", "٣", "--", MARK, "1e", "9" * 400])
NOISE = st.sampled_from([b"{", b"}", b'"', b"\\", b",", b"=", b"\n", b"\r", b"\xff", b"\0", b" ", b"#", MARK.encode()])


def not_quoted(mark: str, error: Exception) -> None:
    assert mark not in str(error)


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@st.composite
def lines(draw: st.DrawFn, values: st.SearchStrategy[str] = NUMBERS) -> str:
    labels = draw(st.dictionaries(LABELS, TEXTS, max_size=6))
    if "quantile" in labels:
        labels["quantile"] = draw(st.sampled_from(["0.5", "0.99", "1"]))
    inside = ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())
    return f"{draw(NAMES)}{{{inside}}} {draw(values)}" if labels else f"{draw(NAMES)} {draw(values)}"


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """A page with something in it that is not a page's."""
    page = "\n".join(draw(st.lists(lines(NUMBERS | ODD), max_size=8))).encode()
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(page)))
        page = page[:at] + draw(NOISE | st.binary(max_size=4)) + page[at + draw(st.integers(0, 8)) :]
    return page


@given(st.lists(lines(), max_size=8))
def test_sound_lines_are_read_as_the_library_reads_them(page: list[str]) -> None:
    text = "\n".join(page) + "\n"
    wanted = set(READ)
    ours = [(one.name, dict(one.labels), one.value) for one in samples(text.encode(), wanted)]
    theirs = [(one.name, one.labels, float(one.value)) for family in text_string_to_metric_families(text)
              for one in family.samples if one.name in wanted and not math.isnan(one.value)]
    assert sorted(map(str, ours)) == sorted(map(str, theirs))


@given(spoilt() | st.binary(max_size=200))
def test_any_page_is_read_or_refused(page: bytes) -> None:
    try:
        found = parse_metrics(page)
    except NoSignalError as error:
        not_quoted(MARK, error)
        return
    numbers = [*found.pending.values(), *found.failures.values(), *found.successes.values(), *found.quantiles.values(),
               found.busy, found.queued_for, found.executions, found.queued, found.broken, found.answered]
    assert all(math.isfinite(number) and number >= 0 for number in numbers)


@given(st.integers(1, 2 * MOST_SAMPLES), st.sampled_from(["a", "é", '\\"', "\\\\"]), st.integers(0, 600))
def test_no_page_has_more_samples_than_an_honest_one(count: int, sign: str, length: int) -> None:
    page = f'{TRITON.metrics.pending}{{model="{sign * length}"}} 1\n'.encode() * count
    try:
        assert len(list(samples(page, {TRITON.metrics.pending}))) <= MOST_SAMPLES
    except NoSignalError:
        assert count > MOST_SAMPLES or len(sign) * length > 400


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["FP32", "INT64", "y", MARK])
KEYS = st.sampled_from(["name", "data", MARK])
JSON = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
                    max_leaves=6)
SHAPE = st.lists(st.integers(-2, 1 << 70) | st.integers(-1, 4), max_size=4) | JSON
TENSOR = st.fixed_dictionaries({}, optional={
    "name": st.sampled_from(["y", f"{MARK} {MARK}", ""]) | JSON,
    "datatype": st.sampled_from(["FP32", "BOOL", "BYTES", "BF16"]) | JSON, "shape": SHAPE,
    "data": st.lists(st.floats() | JSON, max_size=4) | JSON,
    "parameters": st.fixed_dictionaries({}, optional={"binary_data_size": st.integers(-2, 40) | JSON}) | JSON})


@given(st.fixed_dictionaries({}, optional={"inputs": st.lists(TENSOR | JSON, max_size=3) | JSON}), st.integers(0, 9))
def test_any_metadata_makes_a_request_or_is_refused(metadata: dict[str, Any], seed: int) -> None:
    try:
        made = make_request(metadata, seed)
    except ProbeError as error:
        not_quoted(f"{MARK} {MARK}", error)
        return
    assert json.loads(made.body[: made.json_bytes])["inputs"]


@given(st.lists(st.fixed_dictionaries({"outputs": st.lists(TENSOR, max_size=3)}).map(json.dumps).map(str.encode)
                | st.binary(max_size=40) | st.just(b"[" * 100_000), min_size=2, max_size=2),
       st.binary(max_size=16), st.none() | st.integers(0, 400), st.booleans())
def test_any_answers_to_a_probe_are_compared_or_refused(bodies: list[bytes], tail: bytes, length: int | None,
                                                        same_model: bool) -> None:
    try:
        first, second = (read_answer(body + tail, length if length is None else len(body)) for body in bodies)
    except ProbeError as error:
        not_quoted(MARK, error)
        return
    assert f"{MARK} {MARK}" not in match(first, second, same_model).flaw


@given(JSON.map(json.dumps) | st.text(max_size=40, alphabet=string.printable) | st.just("[" * 8000))
def test_any_report_of_a_monitor_is_read_or_refused(text: str) -> None:
    try:
        QualityReport.from_json(text)
    except ContractError:
        return
