"""What engines can be built for a server image, of the facts that it and the builder image told of themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from enginewright_builder import contract
from enginewright_builder.contract import Facts, RuntimeRequest

# In the order of a request: it is part of the fingerprint.
BACKENDS = ("python", "onnxruntime", "tensorrt")
# What Triton's Python backend imports to run an engine of each.
PYTHON_RUNTIMES: Mapping[str, tuple[str, ...]] = {
    "onnxruntime": (contract.LIB_ONNXRUNTIME, contract.LIB_NUMPY),
    "tensorrt": (contract.LIB_TENSORRT_PYTHON, contract.LIB_CUDA_PYTHON, contract.LIB_NUMPY),
    "torch": (contract.LIB_TORCH, contract.LIB_NUMPY),
}
# A plan is read by the version that wrote it; the build number behind is not in every place that tells a version.
_PARTS = 3
# Architectures of Kubernetes, as Linux names them.
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def runtime_of(facts: Facts, image: str, *, generates: bool = False) -> RuntimeRequest:
    """The request's part on the server. Plans are left out where the server's TensorRT is not the builder's. For
    a language model (``generates``) it is the image alone: Triton has no part in it."""
    server = facts.server
    if generates:
        return RuntimeRequest(server_image=image, backends=(), python_runtimes=())
    backends = [name for name in BACKENDS if name in server.backends]
    libraries = [name for name, needed in PYTHON_RUNTIMES.items()
                 if "python" in backends and all(one in server.libraries for one in needed)]
    unread = {"tensorrt"} if other_tensorrt(server.libraries, facts.builder.libraries) else set()
    return RuntimeRequest(server_image=image, backends=tuple(name for name in backends if name not in unread),
                          python_runtimes=tuple(name for name in libraries if name not in unread))


def other_tensorrt(server: Mapping[str, str], builder: Mapping[str, str]) -> tuple[str, str] | None:
    """TensorRT of the builder and of the server, by their libraries, where the one cannot read what the other writes;
    None where it can, or where one of them has none."""
    read = [server[name] for name in (contract.LIB_TENSORRT, contract.LIB_TENSORRT_PYTHON) if server.get(name)]
    written = builder.get(contract.LIB_TENSORRT_PYTHON) or builder.get(contract.LIB_TENSORRT) or ""
    if not read or not written or _short(written) in map(_short, read):
        return None
    return written, ", ".join(dict.fromkeys(read))


def engines_of(runtime: RuntimeRequest, accelerator: str) -> tuple[str, ...]:
    """Of ``spec.engine.backend``, those that the server runs."""
    runs = {*runtime.python_runtimes, *runtime.backends}
    return tuple(name for name in ("tensorrt", "onnxruntime", "torch")
                 if name in runs and (name != "tensorrt" or accelerator == "gpu"))


def as_before(found: RuntimeRequest, before: RuntimeRequest | None) -> RuntimeRequest:
    """``found`` in the order of ``before`` where both name the same: another order would be another fingerprint."""
    same = before is not None and _content(found) == _content(before)
    return before if before is not None and same else found


def _content(runtime: RuntimeRequest) -> tuple[str, frozenset[str], frozenset[str]]:
    return runtime.server_image, frozenset(runtime.backends), frozenset(runtime.python_runtimes)


def driver_runs(least_cuda: str, branches: Iterable[str], cuda: str, driver: str) -> bool:
    """Whether a node's ``driver``, whose newest CUDA is ``cuda``, runs an image that asks for ``least_cuda``, or for a
    driver of one of ``branches``. True where that is unknown."""
    if not least_cuda or not cuda or _short(cuda) >= _short(least_cuda):
        return True
    return driver.split(".")[0] in branches


def _short(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:_PARTS]))
