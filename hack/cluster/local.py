"""The local cluster: started, used, and taken away again without a trace."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from cluster import assembly, binaries, dns, host, image_store, network, node, pki, sweep, volumes
from cluster.component import await_ready, halt_together, is_running, launch, record_path
from cluster.kubectl import kubectl
from cluster.packages import system_program
from cluster.paths import cache_dir, cached_directories, local_cluster
from cluster.settings import NODE_NAME
from cluster.steps import ClusterError, say, step

NODE_READY_TIMEOUT_S = 60.0
RUNTIME_TIMEOUT_S = 30.0
LOCK = Path("/run/lock/enginewright-cluster")


class Local:
    """CLUSTER=local."""

    name = "local"

    def __init__(self) -> None:
        self.paths = local_cluster()
        self._host_record = self.paths.state / "host.json"

    @property
    def kubeconfig(self) -> Path:
        if not self.paths.kubeconfig.exists():
            raise ClusterError("there is no local cluster: run hack/cluster/cluster up")
        return self.paths.kubeconfig

    def up(self) -> None:
        _require_root()
        for program in assembly.PACKAGED_PROGRAMS:
            system_program(program)
        with _locked(), step("cluster up"):
            self._up()

    def down(self) -> None:
        if not self.paths.state.exists() and not self.paths.run.exists():
            say("  there is no local cluster")
            return
        _require_root()
        with _locked(), step("cluster down"):
            self._down()

    def status(self) -> bool:
        if not self.paths.kubeconfig.exists():
            print("there is no local cluster")
            return False
        healthy = True
        for component in assembly.components(self.paths).values():
            running = is_running(self.paths, component.name)
            ready = running and component.ready()
            healthy = healthy and ready
            state = "ready" if ready else "running, not ready" if running else "stopped"
            print(f"{component.name:<24} {state:<20} {self.paths.log(component.name)}")
        healthy = healthy and self._node_ready()
        print(f"{'node ' + NODE_NAME:<24} {'ready' if healthy else 'not ready'}")
        return healthy

    def load_images(self, sources: list[str]) -> None:
        self._require_running()
        for source in sources:
            image_store.load(self.paths, source)

    def prune_images(self) -> None:
        """Remove the images that are not the cluster's own."""
        self._require_running()
        image_store.prune(self.paths)

    def create_volume(self, namespace: str, claim: str, size: str) -> Path:
        volumes.check(namespace, claim, size)
        directory = self.paths.volumes / namespace / claim
        directory.mkdir(parents=True, exist_ok=True)
        # Pods run as users of their own, and not each says which group its volumes shall have.
        directory.chmod(0o777)
        text = volumes.local_manifests(namespace, claim, size, directory)
        kubectl(self.kubeconfig, "apply", "-f", "-", text=text)
        # A pod that asks for it before would be looked at again only after a while.
        kubectl(
            self.kubeconfig, "wait", f"pvc/{claim}", f"--namespace={namespace}",
            "--for=jsonpath={.status.phase}=Bound", "--timeout=60s",
        )
        return directory

    def delete_volume(self, namespace: str, claim: str) -> None:
        volumes.check(namespace, claim)
        # This waits until no pod uses the claim: its data is not taken from under one.
        kubectl(
            self.kubeconfig, "delete", "pvc", claim, f"--namespace={namespace}", "--ignore-not-found",
            "--timeout=120s",
        )
        name = volumes.volume_name(namespace, claim)
        kubectl(self.kubeconfig, "delete", "pv", name, "--ignore-not-found", "--timeout=60s")
        sweep.remove_tree(self.paths.volumes / namespace / claim)

    def purge(self) -> None:
        """`down`, and remove what the cluster cached: binaries, images, logs."""
        self.down()
        for path in cached_directories():
            sweep.remove_tree(path)

    def _up(self) -> None:
        fresh = not self.paths.kubeconfig.exists()
        if not self.paths.state.exists() and sweep.pod_cgroups():
            raise ClusterError("another kubelet runs pods on this machine: use CLUSTER=existing with its kubeconfig")
        network.refuse_conflicts()
        parts = assembly.components(self.paths)
        binaries.build(binaries.COREDNS)
        self.paths.create()
        host.remember(self._host_record)
        with step("certificates, configuration, network"):
            pki.create(self.paths.pki, assembly.CERTIFICATES)
            assembly.write_config(self.paths)
            network.create()
        self._start("etcd", "containerd", wait=("etcd",))
        self._start("kube-apiserver", wait=("containerd",))
        if fresh:
            # Pods of an earlier cluster whose `down` was cut short.
            self._remove_pods()
        image_store.load_own(self.paths)
        self._start(wait=("kube-apiserver",))
        pki.write_kubeconfig(self.paths.kubeconfig, self.paths.pki, "admin", assembly.ENDPOINT.url)
        others = tuple(name for name in parts if name not in ("etcd", "containerd", "kube-apiserver"))
        self._start(*others, wait=())
        # Applied while these start: it is there when the controllers begin.
        self._apply_own()
        self._start(wait=others)
        self._await_node()
        self._await_dns()

    def _start(self, *names: str, wait: tuple[str, ...]) -> None:
        """Start `names`, then wait for those of `wait`; what is not waited for starts up beside what comes next."""
        parts = assembly.components(self.paths)
        for name in names:
            launch(self.paths, parts[name])
        for name in wait:
            await_ready(self.paths, parts[name])

    def _down(self) -> None:
        halt_together(self.paths, ("kube-proxy", "kubelet", "kube-scheduler", "kube-controller-manager"))
        with step("pods removed"):
            try:
                runtime = assembly.container_runtime(self.paths)
                launch(self.paths, runtime)
                await_ready(self.paths, runtime)
                self._remove_pods()
            except ClusterError as error:
                say(f"    not all in good order ({error}); what is left is removed by force")
        # Their data goes with them, and an API server that ends in order waits for its etcd.
        halt_together(self.paths, ("kube-apiserver", "etcd"), grace_s=0.0)
        halt_together(self.paths, ("containerd",))
        sweep.processes(self.paths)
        sweep.unmount(self.paths.run, self.paths.state, cache_dir())
        sweep.cgroups()
        sweep.log_links(Path("/var/log/containers"), self.paths.pod_logs)
        network.remove()
        host.restore(self._host_record)
        shutil.rmtree(self.paths.run, ignore_errors=True)
        shutil.rmtree(self.paths.state)

    def _remove_pods(self) -> None:
        program = binaries.plan(binaries.KUBERNETES).binary.with_name("remove-pods")
        if not program.exists():
            raise ClusterError("the cluster's programs are no longer in the cache")
        command = (str(program), f"--endpoint=unix://{self.paths.containerd_socket}")
        deadline = time.monotonic() + RUNTIME_TIMEOUT_S
        while (done := subprocess.run(command, capture_output=True, text=True, check=False)).returncode != 0:
            # containerd accepts connections before its part that keeps pods has read what there is.
            if "not initialized" not in done.stderr or time.monotonic() > deadline:
                raise ClusterError(done.stderr.strip(), self.paths.log("containerd"))
            time.sleep(0.1)

    def _await_node(self) -> None:
        with step(f"node {NODE_NAME} ready"):
            deadline = time.monotonic() + NODE_READY_TIMEOUT_S
            while not self._node_ready():
                if time.monotonic() > deadline:
                    message = f"the node is not ready after {NODE_READY_TIMEOUT_S:.0f} s"
                    raise ClusterError(message, self.paths.log("kubelet"))
                time.sleep(0.2)

    def _node_ready(self) -> bool:
        """Whether the API says so, and by word of the kubelet that runs now: its predecessor's may still stand."""
        try:
            found = json.loads(kubectl(self.kubeconfig, "get", "node", NODE_NAME, "-o", "json"))
            started = record_path(self.paths, "kubelet").stat().st_mtime
        except (ClusterError, FileNotFoundError):
            return False
        return node.is_ready(found, datetime.fromtimestamp(started).astimezone())

    def _apply_own(self) -> None:
        items = [*node.access(), *dns.objects(node.host_resolvers())]
        with step("DNS applied"):
            kubectl(
                self.kubeconfig, "apply", "--server-side", "--force-conflicts", "--field-manager=enginewright-cluster",
                "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}),
            )

    def _await_dns(self) -> None:
        with step("DNS ready"):
            kubectl(
                self.kubeconfig, "rollout", "status", f"--namespace={dns.NAMESPACE}", f"deployment/{dns.NAME}",
                "--timeout=90s", log=self.paths.log("kubelet"),
            )

    def _require_running(self) -> None:
        if not is_running(self.paths, "containerd"):
            raise ClusterError("the local cluster does not run: run hack/cluster/cluster up")


def _require_root() -> None:
    if os.geteuid() != 0:
        raise ClusterError("a Kubernetes node needs root: repeat with sudo, or use CLUSTER=kind or CLUSTER=existing")


@contextmanager
def _locked() -> Iterator[None]:
    """One `up` or `down` at a time on this machine."""
    path = LOCK
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as held:
        while True:
            stream = held.enter_context(path.open("w"))
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("  waiting for another cluster command to end")
                fcntl.flock(stream, fcntl.LOCK_EX)
            # Who held it has removed it, and another may hold its successor.
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_ino == os.fstat(stream.fileno()).st_ino:
                    break
        try:
            yield
        finally:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
