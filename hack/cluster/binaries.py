"""The Go programs of the cluster: built from the modules in hack/go, and kept by the digest of what went into them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster import toolchain
from cluster.paths import GO_MODULES, cache_dir
from cluster.steps import ClusterError, say, step

# Where it is set, programs are taken from this folder, by their names, and none is built: of a machine without Go.
GIVEN = "ENGINEWRIGHT_PROGRAMS"
REPORT_EVERY_S = 4.0
KEPT_VERSIONS = 3
# What the linker strips need not be written first, and with memory enough a compiler collects less garbage: together a
# sixth of its time.
COMPILER = ("-gcflags=all=-dwarf=false",)
COLLECT_AT = "400"


@dataclass(frozen=True)
class Program:
    """A Go program.

    Attributes:
        name: of the binary.
        module: directory under hack/go; without, the one of that name.
        package: what to build there.
        names: further names that the same binary is called by.
        version_of: the module whose version the program shall report.
    """

    name: str
    module: str = ""
    package: str = "."
    names: tuple[str, ...] = ()
    version_of: str = ""

    @property
    def directory(self) -> Path:
        return GO_MODULES / (self.module or self.name)


NODE_PROGRAMS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
    "remove-pods",
)
KUBERNETES = Program("kubernetes", names=NODE_PROGRAMS, version_of="k8s.io/kubernetes")
# Of one module with Kubernetes, as the registry and the engine of network policies below: most packages of theirs are
# packages of its, which so are compiled once.
HELM = Program("helm", "kubernetes", "helm.sh/helm/v3/cmd/helm", version_of="helm.sh/helm/v3")
COREDNS = Program("coredns", "kubernetes", "./coredns")
PAUSE = Program("pause")
# An object store that speaks S3, for tests.
VERSITYGW = Program("versitygw", package="github.com/versity/versitygw/cmd/versitygw")
# A registry of images and artifacts, for tests.
REGISTRY = Program("registry", "kubernetes", "./registry")
# Enforces NetworkPolicies between network namespaces, for tests: the local cluster's network plug-in enforces none.
NETWORK_POLICIES = Program("network-policies", "kubernetes", "./network-policies")
PROGRAMS = (KUBERNETES, HELM, COREDNS, PAUSE, VERSITYGW, REGISTRY, NETWORK_POLICIES)


def module_version(go_mod: str, module: str) -> str:
    """The version of `module` that a go.mod requires.

    Raises:
        ValueError: the file does not require it.
    """
    found = re.search(rf"^\s*(?:require\s+)?{re.escape(module)}\s+(v\S+)", go_mod, re.MULTILINE)
    if found is None:
        raise ValueError(f"go.mod does not require {module}")
    return found[1]


def linker_flags(program: Program, go_mod: str) -> str:
    """-ldflags: stripped, and with the version that the program reports (Go knows only versions of main modules)."""
    flags = ["-s", "-w"]
    if program.version_of:
        version = module_version(go_mod, program.version_of)
        if program is HELM:
            flags.append(f"-X helm.sh/helm/v3/internal/version.version={version}")
            # What `helm template` takes a cluster for; by itself 1.20, which charts refuse.
            major, minor = _numbers(module_version(go_mod, KUBERNETES.version_of))
            for package in ("chartutil", "lint/rules"):
                flags += [f"-X helm.sh/helm/v3/pkg/{package}.k8sVersion{part}={number}"
                          for part, number in (("Major", major), ("Minor", minor))]
        else:
            major, minor = _numbers(version)
            for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
                values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
                flags += [f"-X {package}.{name}={value}" for name, value in values.items()]
    return " ".join(flags)


def _numbers(version: str) -> tuple[str, str]:
    """Major and minor of `v1.2.3`."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    return major, minor


def content_key(directory: Path, *settings: str) -> str:
    """Digest of a module's own files and of `settings`; go.sum stands for all that it depends on."""
    digest = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        if path.suffix in {".go", ".mod", ".sum"}:
            digest.update(f"{path.relative_to(directory)}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    for setting in settings:
        digest.update(f"{setting}\0".encode())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Plan:
    """How a program is built, and where its binary lies when it has been."""

    go: Path
    directory: Path
    arguments: tuple[str, ...]
    binary: Path


def plan(program: Program) -> Plan:
    """The key is known before the build: it depends on what goes in, not on what comes out."""
    directory = program.directory
    go = toolchain.find_go()
    arguments = ("-trimpath", *COMPILER, "-ldflags", linker_flags(program, (directory / "go.mod").read_text()))
    key = content_key(directory, toolchain.version(go), program.package, "CGO_ENABLED=0", *arguments)
    return Plan(go, directory, arguments, cache_dir() / "bin" / f"{program.name}-{key}" / program.name)


def build(program: Program) -> Path:
    """The program's binary, from the cache when the same sources were built before.

    Raises:
        ClusterError: the build failed; the message holds the compiler's. Or the folder that was given lacks it.
    """
    if folder := os.environ.get(GIVEN):
        return _given(Path(folder), program)
    planned = plan(program)
    with _lock(program.name):
        if not planned.binary.exists():
            with step(f"build {program.name}"):
                planned.binary.parent.mkdir(parents=True, exist_ok=True)
                temporary = planned.binary.with_suffix(".tmp")
                _compile(planned, program, temporary)
                temporary.rename(planned.binary)
            _forget_old(program.name)
        _link(planned.binary, program.names)
    return planned.binary


def _given(folder: Path, program: Program) -> Path:
    for name in (program.name, *program.names):
        if not (folder / name).is_file():
            raise ClusterError(f"{GIVEN}={folder} has no {name}: put it there, or unset {GIVEN} to have it built")
    return folder / program.name


def node_program(name: str) -> Path:
    """The path of one of NODE_PROGRAMS, built when needed."""
    return build(KUBERNETES).with_name(name)


def _forget_old(name: str) -> None:
    """Keep the last few: a cluster or a test of another checkout may run an earlier one."""
    built = sorted(cache_dir().glob(f"bin/{name}-*/{name}"), key=lambda path: path.stat().st_mtime)
    for binary in built[:-KEPT_VERSIONS]:
        shutil.rmtree(binary.parent, ignore_errors=True)


def _link(binary: Path, names: tuple[str, ...]) -> None:
    for name in names:
        link = binary.with_name(name)
        if not link.is_symlink():
            link.symlink_to(binary.name)


@contextmanager
def _lock(name: str) -> Iterator[None]:
    """Two that want the same binary: the second waits for the first one's."""
    path = cache_dir() / "locks" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _compile(planned: Plan, program: Program, output: Path) -> None:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOTOOLCHAIN": "local",
                   "GOGC": COLLECT_AT}
    list_command = (planned.go, "list", "-deps", program.package)
    listed = subprocess.run(
        list_command, cwd=planned.directory, env=environment, capture_output=True, text=True, check=False
    )
    # -v prints each package that is compiled; what Go's own cache holds already is not printed.
    command = (str(planned.go), "build", "-v", *planned.arguments, "-o", str(output), program.package)
    with subprocess.Popen(
        command, cwd=planned.directory, env=environment, stderr=subprocess.PIPE, text=True
    ) as compiler:
        assert compiler.stderr is not None
        lines = _report_progress(compiler.stderr, program.name, listed.stdout.count("\n"))
    if compiler.returncode != 0:
        raise ClusterError(f"go build of {planned.directory} failed:\n" + "".join(lines[-30:]))


def _report_progress(lines: Iterator[str], title: str, total: int) -> list[str]:
    """Read the compiler's output; say now and then how far it is. Returns what is not a package's name."""
    began = last = time.monotonic()
    compiled, other = 0, []
    for line in lines:
        if " " in line.strip() or ":" in line:
            other.append(line)
            continue
        compiled += 1
        now = time.monotonic()
        if sys.stderr.isatty() or now - last >= REPORT_EVERY_S:
            last = now
            say(f"    building {title}: {compiled} of at most {total} packages, {now - began:.0f} s")
    return other
