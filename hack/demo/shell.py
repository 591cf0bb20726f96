"""Running other programs (kubectl, helm, our scripts), each with a deadline and its error text kept."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.talk import others_talk

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "hack" / "cluster" / "cluster"
IMAGES = ROOT / "hack" / "images" / "images"
MODELS = "optimisedmodels.enginewright.io"
# kubectl's verbs that do nothing more when they are asked again, what the apiserver says while etcd waits for a disk
# that other programs fill, and how often kubectl asks then. Each try lasts some seconds by itself.
REPEATABLE = frozenset({"apply", "get", "delete"})
ETCD_LATE = "etcdserver: request timed out"
TRIES = 4


class StepError(Exception):
    """A step of the demo did not work; the message says what to look at."""


def run(*command: str | Path, stdin: bytes | None = None, timeout: float = 600, quiet: bool = True) -> str:
    """Runs ``command`` and returns what it printed. Raises :class:`StepError` with its last lines when it fails.

    With ``quiet`` false its messages (stderr) go straight to the terminal: a long step shows what it is doing.
    """
    text = [str(part) for part in command]
    try:
        with contextlib.nullcontext() if quiet else others_talk():
            done = subprocess.run(text, input=stdin, timeout=timeout, check=False, env=os.environ,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE if quiet else None)
    except subprocess.TimeoutExpired as expired:
        raise StepError(f"'{' '.join(text)}' did not finish within {timeout:.0f} s") from expired
    if done.returncode != 0:
        tail = "\n".join((done.stderr or done.stdout or b"").decode(errors="replace").splitlines()[-20:])
        raise StepError(f"'{' '.join(text)}' ended with {done.returncode}\n{tail}")
    return (done.stdout or b"").decode()


@contextlib.contextmanager
def beside(*command: str | Path) -> Iterator[None]:
    """Runs ``command`` for as long as the block takes at most, its messages among those of the block. How it ends does
    not matter: it begins something that the block finishes, or finds finished."""
    text = [str(part) for part in command]
    with subprocess.Popen(text, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)


@dataclass(frozen=True)
class Kube:
    """kubectl of one cluster."""

    kubectl: str
    kubeconfig: str
    helm: str

    @classmethod
    def of_cluster(cls) -> Kube:
        """Asks the cluster script which programs and kubeconfig to use (it honours ``CLUSTER=local|kind|existing``)."""
        found = json.loads(run(CLUSTER, "env", "--json"))
        return cls(kubectl=found["kubectl"], kubeconfig=found["kubeconfig"], helm=found["helm"])

    def __call__(self, *arguments: str, stdin: str | bytes | None = None, timeout: float = 300) -> str:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        tries = TRIES if arguments[0] in REPEATABLE else 1
        while True:
            tries -= 1
            try:
                return run(self.kubectl, f"--kubeconfig={self.kubeconfig}", *arguments, stdin=data, timeout=timeout)
            except StepError as failure:
                if not tries or ETCD_LATE not in str(failure):
                    raise

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))

    def make_namespace(self, name: str) -> None:
        """With the strictest of the Pod Security Standards enforced."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        self("apply", "-f", "-", stdin=json.dumps(body))

    def remove_namespace(self, name: str) -> None:
        """Pods first, and without their drain: a namespace that finds some looks again after half of their grace
        period. Their owners are deleted first and leave them behind: garbage collection would end them with their
        drain, and a kubelet that waits for a drain ignores a shorter one."""
        found = self("get", f"namespace/{name}", f"crd/{MODELS}", "--ignore-not-found", "-o", "name").split()
        if f"namespace/{name}" not in found:
            return
        # First who would make pods again; the CRD may be gone already.
        models = ("om",) if any(one.endswith(f"/{MODELS}") for one in found) else ()
        for kinds in (*models, "deployment,replicaset,job"):
            self("delete", kinds, "--all", "-n", name, "--cascade=orphan", "--timeout=240s")
        self("delete", "pod", "--all", "-n", name, "--grace-period=1", "--timeout=240s")
        self("delete", "namespace", name, "--ignore-not-found", "--wait=true", "--timeout=240s", timeout=270)

    def spawn(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Starts kubectl in the background (port-forward, logs -f); the caller ends it."""
        command = [self.kubectl, f"--kubeconfig={self.kubeconfig}", *arguments]
        return subprocess.Popen(command, text=True, **options)

    def upgrade_install(self, release: str, namespace: str, chart: Path, values: dict[str, Any]) -> None:
        self._end_what_was_interrupted(release, namespace)
        # A CRD that an older demo applied by itself has no owner yet.
        command = ("upgrade", "--install", release, chart, "--namespace", namespace, "--create-namespace",
                   "--take-ownership", "--values", "-")
        run(self.helm, f"--kubeconfig={self.kubeconfig}", *command, stdin=json.dumps(values).encode(), timeout=240)
        # Helm's own wait looks every two seconds; this one watches.
        self("rollout", "status", "deployment", "--namespace", namespace, "--timeout=180s", "--selector",
             f"app.kubernetes.io/instance={release}")

    def _end_what_was_interrupted(self, release: str, namespace: str) -> None:
        """Helm refuses to go on where an earlier call of it was stopped in the middle, as by Ctrl-C: a first
        installation goes, and an upgrade goes back."""
        found = json.loads(run(self.helm, f"--kubeconfig={self.kubeconfig}", "list", "--pending", "--namespace",
                               namespace, "--filter", f"^{release}$", "--output", "json"))
        for one in found:
            if one["status"] == "pending-install":
                self.uninstall(release, namespace)
            else:
                run(self.helm, f"--kubeconfig={self.kubeconfig}", "rollback", release, "-n", namespace)

    def uninstall(self, release: str, namespace: str) -> None:
        run(self.helm, f"--kubeconfig={self.kubeconfig}", "uninstall", release, "-n", namespace, "--ignore-not-found")
