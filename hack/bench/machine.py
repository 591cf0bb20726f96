"""On what a benchmark or a study ran."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from enginewright_builder.system import available_cpus, cpu_name, memory_bytes

PACKAGES = ("torch", "tensorrt", "tensorrt_cu12_bindings", "onnx", "onnxruntime", "onnxruntime-gpu", "nvidia-modelopt",
            "transformers", "timm", "torchvision", "nvidia-pytriton", "numpy")


def hardware() -> dict[str, Any]:
    """The GPU's name, memory and driver as ``nvidia-smi`` tells them, and :func:`processor`."""
    query = "name,memory.total,driver_version,clocks.max.sm,power.limit,compute_cap"
    line = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader", "-i", "0"],
                          capture_output=True, text=True, check=True).stdout.strip()
    name, memory, driver, clock, power, capability = (part.strip() for part in line.split(","))
    return {"gpu": name, "memory": memory, "driver": driver, "max_sm_clock": clock, "power_limit": power,
            "compute_capability": capability, **processor()}


def processor() -> dict[str, Any]:
    """The host's processor, and how many cores of it this process may use."""
    return {"cpu": cpu_name(), "cores": available_cpus()}


def host() -> dict[str, Any]:
    """:func:`processor`, with all cores that the machine has and its memory in GiB."""
    return {**processor(), "of_cores": os.cpu_count(), "memory_gib": round(memory_bytes() / 2**30)}


def processor_of(hardware: Mapping[str, Any]) -> str:
    """Of what a study recorded; some that are committed call it ``device``."""
    return str(hardware["cpu"] if "cpu" in hardware else hardware["device"])


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
