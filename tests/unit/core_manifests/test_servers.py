"""Records of servers: what manifests, probes and queries take from them."""

from __future__ import annotations

import pytest

from enginewright.core.servers import Server
from enginewright.core.servers.triton import TRITON
from enginewright.core.servers.vllm import VLLM


@pytest.mark.parametrize("server", [TRITON, VLLM], ids=lambda server: server.program[0])
def test_a_record_is_of_one_piece(server: Server) -> None:
    names = [port.name for port in server.ports]
    assert "http" in names, "probes and the Service ask there"
    assert len({port.number for port in server.ports}) == len(set(names)) == len(names)
    assert server.port_words == [f"--{port.option}={port.number}" for port in server.ports]
    assert {port.name for port in server.client_ports} == set(names) - {"metrics"}
    assert server.exit_word(30).startswith("--")
    assert server.exit_word(30).endswith("=30")
    assert server.live_path.startswith("/")
    assert server.ready_path.startswith("/")
