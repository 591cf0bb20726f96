"""The timing cache: what TensorRT measured of its kernels, kept in the store from one build to the next.

A file for each class of device and exact TensorRT version, since neither reads the other's figures. TensorRT's own
check of the content is loose, so the file says whose it is and carries a digest, or where there are signing keys a MAC;
one that is damaged, another's or not signed is put aside, never trusted.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from enginewright_builder.engine_store.signing import Keys

_MAGIC = b"enginewright timing cache 1"


@dataclass(frozen=True, kw_only=True)
class CacheKey:
    """``capability`` is the compute capability, as ``9.0``; ``mig_profile`` is empty for a whole GPU."""

    product: str
    capability: str
    mig_profile: str
    tensorrt: str

    @property
    def text(self) -> str:
        return "/".join((self.product, self.capability, self.mig_profile, self.tensorrt))

    @property
    def file(self) -> str:
        """As ``tensorrt-10.6.0-nvidia-h200-9.0.cache``."""
        parts = ("tensorrt", self.tensorrt, self.product, self.capability, self.mig_profile)
        return "-".join(re.sub(r"[^a-z0-9.]+", "-", part.lower()) for part in parts if part) + ".cache"


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """``content`` is what TensorRT wrote, empty where there is nothing to use; ``problem`` then says why, if there was
    a file."""

    content: bytes = b""
    problem: str = ""


def load(folder: Path, key: CacheKey, keys: Keys | None = None) -> Loaded:
    path = folder / key.file
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return Loaded()
    except OSError as error:
        return Loaded(problem=f"{path.name} cannot be read: {error.strerror}")
    head, _, content = raw.partition(b"\n\n")
    lines = head.split(b"\n")
    if lines[0] != _MAGIC or len(lines) != 3:
        return Loaded(problem=f"{path.name} is no timing cache")
    if lines[1] != key.text.encode():
        return Loaded(problem=f"{path.name} was measured on {lines[1].decode(errors='replace')[:100]}")
    if keys and not keys.verifies(_purpose(key), content, lines[2].decode(errors="replace")):
        return Loaded(problem=f"{path.name} is not signed by a build Job of this namespace, or is damaged")
    if not keys and lines[2] != hashlib.sha256(content).hexdigest().encode():
        return Loaded(problem=f"{path.name} is damaged")
    return Loaded(content=content)


def save(folder: Path, key: CacheKey, content: bytes, keys: Keys | None = None) -> None:
    """Replaces the file in one step, so that a reader sees the old or the new one. Raises ``OSError``."""
    folder.mkdir(parents=True, exist_ok=True)
    digest = keys.mac(_purpose(key), content) if keys else hashlib.sha256(content).hexdigest()
    with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{key.file}.", delete=False) as part:
        try:
            part.write(b"\n".join((_MAGIC, key.text.encode(), digest.encode(), b"", b"")) + content)
            part.flush()
            os.fsync(part.fileno())
            os.replace(part.name, folder / key.file)
        except BaseException:
            os.unlink(part.name)
            raise


def _purpose(key: CacheKey) -> str:
    return f"timings {key.text}"
