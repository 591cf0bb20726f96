"""Stand-ins for libraries that are not there: loaded with every symbol bound, stopping whoever calls one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from images.recipe import ROOT

SCRIPT = ROOT / "builders" / "images" / "cuda-stand-ins"
# A library that jumps into two others: one with versioned symbols, one without.
CALLER = """
    .text
    .globl ask
    .type ask, @function
ask:
    sub $8, %rsp
    call versioned_call@PLT
    call plain_call@PLT
"""
CALLED = "    .text\n    .globl {name}\n    .type {name}, @function\n{name}:\n    ret\n"

pytestmark = pytest.mark.skipif(not (shutil.which("as") and shutil.which("ld")), reason="needs binutils")


def library(source: str, path: Path, *options: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    assembled = path.with_suffix(".o")
    subprocess.run(["as", "-o", assembled, "-"], input=source, text=True, check=True)
    subprocess.run(["ld", "-shared", "-soname", path.name, "-o", path, assembled, *options], check=True)
    assembled.unlink()


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A package ``torch`` whose library needs two that were left out."""
    absent = tmp_path / "absent"
    absent.mkdir()
    script = tmp_path / "versions.map"
    script.write_text("libversioned.so.1 { global: *; };\n")
    library(CALLED.format(name="versioned_call"), absent / "libversioned.so.1", f"--version-script={script}")
    library(CALLED.format(name="plain_call"), absent / "libplain.so.2")
    torch = tmp_path / "packages" / "torch" / "lib"
    needed = [str(absent / "libversioned.so.1"), str(absent / "libplain.so.2")]
    library(CALLER, torch / "libtorch.so", *needed, "-rpath", "$ORIGIN")
    return tmp_path / "packages"


def load(packages: Path, statement: str) -> subprocess.CompletedProcess[str]:
    path = packages / "torch" / "lib" / "libtorch.so"
    program = f"import ctypes, os; library = ctypes.CDLL({str(path)!r}, mode=os.RTLD_NOW); {statement}"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_a_library_loads_with_stand_ins_and_not_without(packages: Path) -> None:
    assert "cannot open shared object file" in load(packages, "pass").stderr
    done = subprocess.run(
        [SCRIPT, packages, packages / "torch" / "lib"], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["libplain.so.2: 1 symbols", "libversioned.so.1: 1 symbols"]
    assert load(packages, "print('loaded')").stdout == "loaded\n"


def test_symbols_of_the_systems_libraries_are_left_to_them(packages: Path) -> None:
    """Some releases of PyTorch ask for them without a version."""
    torch = packages / "torch" / "lib"
    libc = packages.parent / "unversioned" / "libc.so.6"
    library(CALLED.format(name="getpid"), libc)
    caller = CALLER.replace("call plain_call@PLT", "call plain_call@PLT\n    call getpid@PLT")
    needed = [packages.parent / "absent" / "libversioned.so.1", packages.parent / "absent" / "libplain.so.2", libc]
    library(caller, torch / "libtorch.so", *map(str, needed), "-rpath", "$ORIGIN")
    done = subprocess.run([SCRIPT, packages, torch], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["libplain.so.2: 1 symbols", "libversioned.so.1: 1 symbols"]


def test_who_calls_one_is_told_what_and_stopped(packages: Path) -> None:
    subprocess.run([SCRIPT, packages, packages / "torch" / "lib"], capture_output=True, check=True)
    called = load(packages, "library.ask(); print('went on')")
    assert called.returncode < 0
    assert called.stdout == ""
    assert called.stderr.startswith("versioned_call: this image holds PyTorch for the CPU alone")


def test_where_nothing_is_missing_it_says_so(packages: Path) -> None:
    shutil.copytree(packages.parent / "absent", packages / "torch" / "lib", dirs_exist_ok=True)
    done = subprocess.run([SCRIPT, packages, packages / "out"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "PyTorch misses no library" in done.stderr
