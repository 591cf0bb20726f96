"""Requests that are asked once more of a candidate: whom, when not, and what is kept of the answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import numpy as np
import pytest

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.quality.mirror import HEADER, TURN_SECONDS, Mirror, addresses
from enginewright_builder.quality.trace import Traced
from enginewright_builder.quality.window import Window
from enginewright_builder.tensors import Array
from support.http_server import answering

ROWS, NUMBERS = (Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=shape),),
                           outputs=(TensorSpec(name="y", dtype="float32", shape=shape),))
                 for shape in (("batch", "size"), ("batch",)))
HOST = "minilm-mirror.prod.svc.cluster.local."
Reply = Callable[[Array], Array | int]


@contextmanager
def candidate(reply: Reply, model: str = "m") -> Iterator[int]:
    """Answers ``y`` to ``x`` in Triton's binary form; an int is a status. Gives the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body, head = self.rfile.read(int(self.headers["Content-Length"])), int(self.headers[HEADER])
            if self.path != f"/v2/models/{model}/infer":
                self.send_error(404)
                return
            [entry] = json.loads(body[:head])["inputs"]
            assert (entry["name"], entry["datatype"]) == ("x", "FP32")
            found = reply(np.frombuffer(body[head:], "<f4").reshape(entry["shape"]))
            if isinstance(found, int):
                self.send_error(found)
                return
            raw = found.astype("<f4").tobytes()
            told = json.dumps({"outputs": [{"name": "y", "datatype": "FP32", "shape": list(found.shape),
                                            "parameters": {"binary_data_size": len(raw)}}]}).encode()
            self.send_response(200)
            self.send_header(HEADER, str(len(told)))
            self.send_header("Content-Length", str(len(told) + len(raw)))
            self.end_headers()
            self.wfile.write(told + raw)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with answering(Handler) as port:
        yield port


class Names:
    """Who is behind the name; ``now`` is the clock."""

    def __init__(self, *found: str) -> None:
        self.found, self.now = frozenset(found), 0.0

    def mirror(self, port: int = 1, own: str = "10.0.0.1", interface: Interface = ROWS) -> Mirror:
        return Mirror(HOST, "m", Window("cosine", 1), interface=interface, port=port, own=own,
                      resolve=lambda host, at: self.found, clock=lambda: self.now)


def traced(*values: float) -> Traced:
    array = np.array([values], np.float32)
    return Traced(inputs={"x": array}, outputs={"y": array})


def test_a_candidate_with_a_cache_is_asked_past_it() -> None:
    names = Names("127.0.0.1")
    with candidate(lambda x: x, "m_computed") as port:
        mirror = names.mirror(port)
        mirror.turn()
        mirror.send(traced(1.0, 2.0))
    assert mirror.mirrored == 1


@pytest.mark.parametrize(("reply", "mean"), [
    (lambda x: x, 1.0), (lambda x: x * np.float32(1.001), 1.0), (lambda x: -x, 0.0), (lambda x: x[:, :1], 0.0),
    (lambda x: x * np.float32("nan"), 0.0),
], ids=["the same", "nearly", "negated", "another shape", "NaN"])
def test_answers_are_scored_against_what_clients_got(reply: Reply, mean: float) -> None:
    names = Names("127.0.0.1")
    with candidate(reply) as port:
        mirror = names.mirror(port)
        mirror.turn()
        for number in range(3):
            mirror.send(traced(1.0, 2.0, number))
    assert mirror.mirrored == 3
    assert mirror.agreed / 3 == pytest.approx(mean, abs=1e-5)
    assert mirror.targets == {"127.0.0.1"}


@pytest.mark.parametrize("reply", [lambda x: 400, lambda x: 503], ids=["refused", "busy"])
def test_what_is_not_answered_does_not_count(reply: Reply) -> None:
    names = Names("127.0.0.1")
    with candidate(reply) as port:
        mirror = names.mirror(port)
        mirror.turn()
        mirror.send(traced(1.0))
    mirror.send(traced(1.0))  # nobody is there at all
    assert (mirror.mirrored, mirror.agreed) == (0, 0.0)


def test_nothing_is_sent_where_the_name_leads_nowhere_or_here() -> None:
    asked: list[Array] = []

    def reply(x: Array) -> Array:
        asked.append(x)
        return x

    with candidate(reply) as port:
        for found in ((), ("127.0.0.1",), ("127.0.0.1", "10.0.0.7")):
            mirror = Names(*found).mirror(port, own="127.0.0.1")
            mirror.turn()
            mirror.send(traced(1.0))
            assert mirror.targets == frozenset()
    assert not asked


def test_another_candidate_begins_without_scores_and_a_replica_more_does_not() -> None:
    names = Names("127.0.0.1")
    with candidate(lambda x: x) as port:
        mirror = names.mirror(port)
        mirror.turn()
        mirror.send(traced(1.0))
        for found, scored in ((("127.0.0.1", "localhost"), 2), (("localhost",), 3), (("127.0.0.1",), 1), ((), 0)):
            names.found = frozenset(found)
            mirror.turn()
            mirror.send(traced(1.0))
            assert mirror.targets == set(found)
            assert mirror.mirrored == mirror.agreed == scored


def test_one_number_a_sample_goes_and_comes_as_triton_takes_it() -> None:
    names, asked = Names("127.0.0.1"), list[tuple[int, ...]]()

    def reply(x: Array) -> Array:
        asked.append(x.shape)
        return x

    numbers = np.array([1.0, -2.0], np.float32)
    with candidate(reply) as port:
        mirror = names.mirror(port, interface=NUMBERS)
        mirror.send(Traced(inputs={"x": numbers}, outputs={"y": numbers}))
    assert (asked, mirror.mirrored, mirror.agreed) == ([(2, 1)], 1, 1.0)


def test_nobody_is_looked_for_while_no_request_comes() -> None:
    asked: list[str] = []

    def resolve(host: str, port: int) -> frozenset[str]:
        asked.append(host)
        return frozenset()

    mirror = Mirror(HOST, "m", Window("cosine", 1), interface=ROWS, port=1, own="", resolve=resolve)
    for _ in range(3):
        mirror.turn()
    assert not asked
    mirror.send(traced(1.0))
    mirror.send(traced(1.0))
    assert asked == [HOST], "once a turn"


def test_a_slow_candidate_is_asked_for_a_part_of_each_turn() -> None:
    names = Names("127.0.0.1")

    def slow(x: Array) -> Array:
        names.now += TURN_SECONDS / 2
        return x

    with candidate(slow) as port:
        mirror = names.mirror(port)
        for expected in (2, 4):
            mirror.turn()
            for _ in range(5):
                mirror.send(traced(1.0))
            assert mirror.mirrored == expected


def test_a_name_that_nobody_has_is_no_error() -> None:
    assert addresses("nobody.invalid", 80) == frozenset()
    assert addresses("127.0.0.1", 80) == {"127.0.0.1"}
