"""What a server tells of its device's memory, as Triton writes its metrics."""

from __future__ import annotations

import pytest

from enginewright_builder.triton.client import device_bytes

TWO = """# HELP nv_gpu_memory_total_bytes GPU total memory, in bytes
# TYPE nv_gpu_memory_total_bytes gauge
nv_gpu_memory_total_bytes{gpu_uuid="GPU-a"} 85520809984
nv_gpu_memory_used_bytes{gpu_uuid="GPU-a"} 1073741824
nv_gpu_memory_used_bytes{gpu_uuid="GPU-b"} 2.147483648e+09
nv_cpu_memory_used_bytes 8589934592
"""


@pytest.mark.parametrize(("page", "found"), [(TWO, 3 << 30), ("nv_cpu_memory_used_bytes 1\n", 0), ("", 0)],
                         ids=["two GPUs", "no GPU", "nothing"])
def test_memory_of_the_gpus_counts_together(page: str, found: int) -> None:
    assert device_bytes(page) == found
