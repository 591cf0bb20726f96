"""Which memory is page-locked, so that a GPU reads inputs where Triton put them; in a real mapping of shared memory."""

from __future__ import annotations

import numpy as np
import pytest

from enginewright_builder.pod.python_model.shared_memory import WORTH_PINNING, SharedMemory, mapping
from support.shared_memory import in_shared_memory

MAPS = """7f0000000000-7f0000400000 rw-s 00000000 00:1a 123   /dev/shm/triton_python_backend_shm_region_1
7f0000400000-7f0000500000 rw-p 00000000 00:00 0
7f0000500000-7f0000600000 rw-s 00000000 00:1a 124   /dev/shm/triton_python_backend_shm_region_1 (deleted)
"""


@pytest.mark.parametrize(("address", "expected"), [
    (0x7f0000000000, (0x7f0000000000, 0x7f0000400000, True)),
    (0x7f00003fffff, (0x7f0000000000, 0x7f0000400000, True)),
    (0x7f0000400000, (0x7f0000400000, 0x7f0000500000, False)),
    (0x7f0000500010, (0x7f0000500000, 0x7f0000600000, True)),
    (0x1000, (0x1000, 0x1001, False)),
])
def test_the_mapping_around_an_address(address: int, expected: tuple[int, int, bool]) -> None:
    assert mapping(address, MAPS) == expected


def test_a_region_is_registered_whole_and_once() -> None:
    registered: list[tuple[int, int]] = []
    memory = SharedMemory([lambda address, size: registered.append((address, size))] * 2)
    with in_shared_memory(np.zeros((8, WORTH_PINNING), np.uint8)) as (array, address, size):
        for rows in (array[3:5], array, array[:1]):
            memory.pin(rows)
    assert registered == [(address, size)] * 2, "once for each reader"


def test_small_inputs_and_memory_of_the_process_alone_are_left() -> None:
    registered: list[tuple[int, int]] = []
    memory = SharedMemory([lambda address, size: registered.append((address, size))])
    memory.pin(np.zeros(4 * WORTH_PINNING, np.uint8))
    with in_shared_memory(np.zeros(WORTH_PINNING - 1, np.uint8)) as (array, _, _):
        memory.pin(array)
    assert not registered


def test_where_cuda_refuses_it_is_said_once_and_not_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    tried = []

    def refuse(address: int, size: int) -> None:
        tried.append((address, size))
        raise RuntimeError("CUDA: operation not supported")

    memory = SharedMemory([refuse])
    for _ in range(2):
        with in_shared_memory(np.zeros(WORTH_PINNING, np.uint8)) as (array, _, _):
            memory.pin(array)
    assert len(tried) == 1
    assert "inputs are copied once more" in capsys.readouterr().err
