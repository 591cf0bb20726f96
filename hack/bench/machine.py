"""On what a benchmark ran."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

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
    cpu = next((row.partition(":")[2].strip() for row in Path("/proc/cpuinfo").read_text().splitlines()
                if row.startswith("model name")), platform.processor())
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0))}


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
