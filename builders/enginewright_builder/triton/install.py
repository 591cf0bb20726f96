"""Finds a tritonserver on this machine and what it needs in its environment."""

from __future__ import annotations

import importlib.util
import os
import shutil
import stat
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from enginewright_builder.errors import UserError

BINARY_VARIABLE = "TRITONSERVER_BIN"
# A folder of further backends, each in a folder of its name, such as one with NVIDIA's TensorRT backend.
BACKENDS_VARIABLE = "TRITONSERVER_BACKENDS"


@dataclass(frozen=True, kw_only=True)
class Installation:
    """``backends`` is a folder that the wheel's server is pointed at; None when the server knows its own."""

    binary: Path
    backends: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def find(scratch: Path) -> Installation:
    """``TRITONSERVER_BIN``, else ``tritonserver`` in PATH, else the one that the ``nvidia-pytriton`` wheel carries.

    The first two are used as they are. For the wheel, backends are copied below ``scratch``: the Python backend changes
    the mode of its stub at every load, which only the owner may do. Those of ``TRITONSERVER_BACKENDS`` are linked
    beside them. Raises :class:`UserError` ``ServerMissing``.
    """
    named = os.environ.get(BINARY_VARIABLE) or shutil.which("tritonserver")
    if named:
        return Installation(binary=Path(named), environment={"PATH": _path()})
    spec = importlib.util.find_spec("pytriton")
    if spec is None or not spec.submodule_search_locations:
        raise UserError("ServerMissing", "there is no tritonserver on this machine", field=BINARY_VARIABLE,
                        value=os.environ.get("PATH", ""),
                        remedy=f"install enginewright[triton], put tritonserver into PATH, or set {BINARY_VARIABLE}")
    return _from_wheel(Path(next(iter(spec.submodule_search_locations))), scratch)


def _from_wheel(package: Path, scratch: Path) -> Installation:
    triton = package / "tritonserver"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = triton / "python_backend_stubs" / python / "triton_python_backend_stub"
    if not stub.exists():
        raise UserError("ServerMissing", f"nvidia-pytriton has no Python backend for Python {python}", value=python,
                        field=BINARY_VARIABLE, remedy="use a Python that it has, or another tritonserver")
    backends = scratch / "backends"
    if not (backends / "python" / stub.name).exists():
        shutil.copytree(triton / "backends", backends, dirs_exist_ok=True)
        target = backends / "python" / stub.name
        shutil.copyfile(stub, target)
        target.chmod(target.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP)
        if further := os.environ.get(BACKENDS_VARIABLE):
            for folder in sorted(Path(further).resolve().iterdir()):
                (backends / folder.name).symlink_to(folder)
    # Away from the wheel the stub's relative library path no longer holds; it also needs this Python's shared library.
    libraries = [str(package.parent / "nvidia_pytriton.libs"), sysconfig.get_config_var("LIBDIR") or "",
                 os.environ.get("LD_LIBRARY_PATH", "")]
    environment = {
        "PATH": _path(),
        "LD_LIBRARY_PATH": os.pathsep.join(part for part in libraries if part),
        # Read by our model.py, as the stub's interpreter does not.
        "PYTHONPATH": os.pathsep.join(_site_packages()),
    }
    return Installation(binary=triton / "bin" / "tritonserver", backends=backends, environment=environment)


def _path() -> str:
    """This interpreter first, so that an embedded Python finds the same standard library and packages."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _site_packages() -> list[str]:
    paths = [os.environ.get("PYTHONPATH", ""), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    return list(dict.fromkeys(path for path in paths if path))
