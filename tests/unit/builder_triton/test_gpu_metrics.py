"""What a server tells of its GPUs, as Triton writes its metrics."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from enginewright_builder.measure.energy import Reading, Sampler
from enginewright_builder.triton.client import Address, Server
from enginewright_builder.triton.gpu_metrics import PINNED_TOTAL, PINNED_USED, TritonMeter, pinned, reading

TWO = """# HELP nv_gpu_memory_total_bytes GPU total memory, in bytes
# TYPE nv_gpu_memory_total_bytes gauge
nv_gpu_memory_total_bytes{gpu_uuid="GPU-a"} 85520809984
nv_gpu_memory_used_bytes{gpu_uuid="GPU-a"} 1073741824
nv_gpu_memory_used_bytes{gpu_uuid="GPU-b"} 2.147483648e+09
nv_cpu_memory_used_bytes 8589934592
nv_gpu_utilization{gpu_uuid="GPU-a"} 0.25
nv_gpu_utilization{gpu_uuid="GPU-b"} 0.75
nv_energy_consumption{gpu_uuid="GPU-a"} 1500.25
nv_energy_consumption{gpu_uuid="GPU-b"} 500
"""


@pytest.mark.parametrize(("page", "found"), [
    (TWO, Reading(joules=2000.25, utilisation=0.5, memory_bytes=3 << 30)),
    ("nv_cpu_memory_used_bytes 1\n", Reading()), ("", Reading()),
    ('nv_energy_consumption{gpu_uuid="GPU-a"} nan\nnv_gpu_utilization{gpu_uuid="GPU-a"} -1\n', Reading()),
    ('nv_gpu_memory_used_bytes{gpu_uuid="GPU-a"} much\n', Reading()),
], ids=["two GPUs", "no GPU", "nothing", "no figure", "no number"])
def test_gpus_count_together(page: str, found: Reading) -> None:
    assert reading(page) == found


@pytest.fixture
def served() -> Iterator[tuple[str, list[str]]]:
    """An address, and the pages that it answers, one after the other; an error once there is none."""
    pages: list[str] = []

    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.pop(0) if pages else ""
            self.send_response(200 if page else 503)
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, format: str, *values: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Metrics)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}", pages
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_window_has_the_energy_that_the_server_counted_in_it(served: tuple[str, list[str]]) -> None:
    address, pages = served
    pages += [TWO, TWO.replace("1500.25", "1800.25")]
    meter = TritonMeter(address)
    with Sampler(meter, period=60) as sampler:
        pass
    assert (sampler.use.meter, sampler.use.joules, sampler.use.memory_bytes) == ("triton", 300.0, 3 << 30)
    assert meter.read() == Reading()  # it answers with an error now
    meter.close()


def test_a_server_that_is_gone_tells_nothing() -> None:
    meter = TritonMeter("127.0.0.1:1")
    assert meter.read() == Reading()
    meter.close()


@pytest.mark.parametrize(("gpus", "sliced", "name"), [((0,), False, "triton"), ((0,), True, None)],
                         ids=["whole", "slice"])
def test_metrics_tell_of_whole_gpus_alone(gpus: tuple[int, ...], sliced: bool, name: str | None) -> None:
    server = Server(Address(http="a:1", grpc="a:2", metrics="a:3"), gpus=gpus, sliced=sliced)
    meter = server.meter()
    assert (meter.name if meter else None) == name
    if meter:
        meter.close()
    if sliced:
        assert asyncio.run(server.memory_bytes()) == 0


@pytest.mark.parametrize(("page", "used", "total"), [
    ("nv_pinned_memory_pool_total_bytes 268435456\nnv_pinned_memory_pool_used_bytes 4.194304e+06\n", 4 << 20,
     256 << 20),
    ("nv_pinned_memory_pool_used_bytes much\n", None, None), (TWO, None, None),
], ids=["both", "no number", "an older Triton"])
def test_what_is_used_of_the_pinned_pool(page: str, used: int | None, total: int | None) -> None:
    assert (pinned(page, PINNED_USED), pinned(page, PINNED_TOTAL)) == (used, total)
