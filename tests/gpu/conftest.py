"""Tests of a real GPU fail where one asks for them and they cannot run: a skip would look like a proof."""

from __future__ import annotations

import pytest

from enginewright_builder.engines.modelopt_graphs import missing
from enginewright_builder.engines.trt_device import MissingError, gpu, tensorrt


@pytest.fixture(scope="session", autouse=True)
def machine() -> None:
    """Has a GPU, TensorRT and ModelOpt."""
    if reason := lacking():
        pytest.fail(f"tests/gpu cannot run here: {reason}. Run `make test-gpu` on a machine with an NVIDIA GPU, with "
                    "what hack/bench/carry.sh packs", pytrace=False)


def lacking() -> str:
    try:
        tensorrt()
        gpu()
    except MissingError as error:
        return str(error)
    return missing()
