"""MIG profiles of the GPUs that have them, and which is the smallest that holds a model.

Memory is the usable figure, not the one in the profile's name: the name rounds up. Sources: A100 and A30 from the
device tables of NVIDIA/go-nvml (pkg/nvml/mock/gpus); names and counts of all rows from the MIG User Guide (supported
MIG profiles) and NVIDIA/mig-parted's default configuration; Hopper and Blackwell memory and SMs from `nvidia-smi mig
-lgip` listings in public reports (mig-parted issue 120, pull request 101; gpu-operator pull requests 900, 1242, 1351).
Where no report gives a figure, it is that of as many memory slices of the same board, or of the smaller board of its
family (the 96 GB boards take those of 94 GB). Where reports differ, the smaller stands (B200 1g: 20.5, elsewhere 22.0).
SMs are 0 where unknown. A running server reads the truth from NVML; this table only has to choose a profile.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

GIB = 1024**3


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One way to cut a board. ``compute`` slices of 7 (A30: 4), ``memory`` slices of 8 (A30: 4), ``gib`` usable memory,
    ``count`` how many fit on one board."""

    name: str
    gib: float
    sms: int
    compute: int
    memory: int
    count: int

    @property
    def bytes(self) -> int:
        return math.floor(self.gib * GIB)


@dataclass(frozen=True, kw_only=True)
class Board:
    """``pattern`` matches the value of the node label ``nvidia.com/gpu.product``. Profiles from small to large."""

    name: str
    pattern: str
    profiles: tuple[Profile, ...]
    architecture: str = "amd64"


def _seven(names: str, gib: tuple[float, ...], sms: tuple[int, ...]) -> tuple[Profile, ...]:
    """The six shapes of a board with seven compute and eight memory slices."""
    shapes = ((1, 1, 7), (1, 2, 4), (2, 2, 3), (3, 4, 2), (4, 4, 1), (7, 8, 1))
    return tuple(Profile(name=name, gib=memory, sms=sm, compute=c, memory=m, count=n)
                 for name, memory, sm, (c, m, n) in zip(names.split(), gib, sms, shapes, strict=True))


BOARDS: tuple[Board, ...] = (
    Board(name="A100-40GB", pattern=r"A100-(SXM4|PCIE|PCIe)-40GB", profiles=_seven(
        "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb",
        (4.75, 9.63, 9.63, 19.5, 19.5, 39.25), (14, 14, 28, 42, 56, 98))),
    Board(name="A100-80GB", pattern=r"A100-((SXM4-|PCIE-|PCIe-)80GB|80GB-PCIe)", profiles=_seven(
        "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
        (9.63, 19.5, 19.5, 39.25, 39.25, 78.5), (14, 14, 28, 42, 56, 98))),
    Board(name="A30", pattern=r"A30", profiles=(
        Profile(name="1g.6gb", gib=5.7, sms=14, compute=1, memory=1, count=4),
        Profile(name="2g.12gb", gib=11.4, sms=28, compute=2, memory=2, count=2),
        Profile(name="4g.24gb", gib=22.8, sms=56, compute=4, memory=4, count=1))),
    Board(name="GH200-96GB", pattern=r"GH200-(480GB|96GB.*)", architecture="arm64", profiles=_seven(
        "1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb",
        (10.75, 21.62, 21.62, 46.38, 46.38, 92.75), (0, 0, 0, 0, 0, 0))),
    Board(name="H100-94GB", pattern=r"H100-NVL", profiles=_seven(
        "1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb",
        (10.75, 21.62, 21.62, 46.38, 46.38, 92.75), (16, 26, 32, 0, 0, 0))),
    Board(name="H100-96GB", pattern=r"H100-.*96GB.*", profiles=_seven(
        "1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb",
        (10.75, 21.62, 21.62, 46.38, 46.38, 92.75), (0, 0, 0, 0, 0, 0))),
    Board(name="H100-80GB", pattern=r"H100-(80GB-HBM3|PCIe|SXM5.*|80GB.*)", profiles=_seven(
        "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
        (9.75, 19.62, 19.62, 39.5, 39.5, 79.25), (16, 26, 32, 60, 64, 132))),
    Board(name="H200", pattern=r"H200(-NVL)?", profiles=_seven(
        "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb",
        (16.0, 32.25, 32.25, 69.5, 69.5, 139.75), (16, 26, 32, 60, 64, 132))),
    Board(name="GB200", pattern=r"GB200", architecture="arm64", profiles=_seven(
        "1g.23gb 1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb",
        (22.0, 45.5, 45.5, 91.0, 91.0, 182.0), (18, 32, 38, 0, 0, 0))),
    Board(name="B200", pattern=r"B200", profiles=_seven(
        "1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb",
        (20.5, 44.25, 44.25, 88.5, 88.5, 177.0), (18, 30, 36, 0, 0, 0))),
)


def board(product: str) -> Board | None:
    """The board behind a product name such as ``NVIDIA-H100-80GB-HBM3``, or None when it has no known profiles.

    Suffixes that the device plugin adds (``-MIG-…``, ``-SHARED``) are not part of the name.
    """
    bare = re.sub(r"(-MIG-.*)?(-SHARED)?$", "", product)
    return next((board for board in BOARDS if re.fullmatch(rf"(NVIDIA-)?{board.pattern}", bare)), None)


def profiles(product: str) -> tuple[Profile, ...]:
    """From small to large; empty for a product without known profiles."""
    found = board(product)
    return found.profiles if found else ()


def profile(product: str, name: str) -> Profile | None:
    """``name`` may have the suffix ``+me`` (media engines): the same memory and SMs as without."""
    return next((profile for profile in profiles(product) if profile.name == name.removesuffix("+me")), None)


def smallest_profile(product: str, need_bytes: int) -> Profile | str:
    """The smallest profile whose usable memory is at least ``need_bytes``, or why there is none, in words.

    Of two with the same memory the one with fewer compute slices is smaller: more of them fit on a board.
    """
    known = profiles(product)
    if not known:
        return f"{product} is not a GPU whose MIG profiles are known"
    fitting = [profile for profile in known if profile.bytes >= need_bytes]
    if not fitting:
        return (f"{need_bytes / GIB:.1f} GiB are needed, and the largest profile of {product}, {known[-1].name}, has "
                f"{known[-1].gib:g} GiB")
    return min(fitting, key=size)


def size(profile: Profile) -> tuple[int, float]:
    """Orders profiles of one board."""
    return profile.compute, profile.gib


# Need before anything was measured, on the safe side; the engine's record has the measured figure afterwards.
WORKSPACE_BYTES = GIB  # TensorRT's tactics while building
RUNTIME_BYTES = GIB // 2 + GIB // 4  # CUDA context, cuDNN and cuBLAS, Triton
MARGIN = 1.2  # fragmentation, and inputs and outputs in flight
# Bytes that weights take on the device while the ladder is climbed, for each byte of source: the reference (fp32) is
# measured too, beside the candidate, and an fp16 source doubles as fp32.
LADDER_FACTOR = {"auto": 3.0, "fp32": 2.0, "tf32": 2.0, "fp16": 2.5, "bf16": 2.5, "int8": 2.5, "fp8": 2.5}
ACTIVATION_SHARE = 0.05  # of the weights' size, for each sample of the largest batch, at most ACTIVATION_LIMIT times
ACTIVATION_LIMIT = 2.0


def estimate_need(source_bytes: int, precision: str, max_batch_size: int) -> int:
    """Bytes of device memory that a build and its engine need, estimated from the source's size.

    ``(source × ladder factor + activations + workspace + runtime) × margin``. Deliberately high: a slice that is too
    small fails a build, one that is a step too large only costs until the measured figure is known.
    """
    activations = source_bytes * min(ACTIVATION_LIMIT, ACTIVATION_SHARE * max_batch_size)
    return math.ceil((source_bytes * LADDER_FACTOR[precision] + activations + WORKSPACE_BYTES + RUNTIME_BYTES) * MARGIN)


def language_model_need(source_bytes: int) -> int:
    """The same of a language model: its build serves one configuration at a time, each in the source's own precision at
    most, and caches take what is left."""
    return math.ceil((source_bytes + WORKSPACE_BYTES + RUNTIME_BYTES) * MARGIN)
