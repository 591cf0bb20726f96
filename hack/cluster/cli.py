"""A local Kubernetes for development, the demo and the end-to-end tests.

CLUSTER chooses where: `local` (the default) runs a real node on this machine, `kind` a kind cluster, `existing` uses
the cluster of $KUBECONFIG and changes nothing there that is not asked for by name. KIND_NODE_IMAGE names another image
of kind's node than the one on Docker Hub.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from cluster import bare, binaries, provider
from cluster.local import Local
from cluster.paths import local_cluster
from cluster.steps import ClusterError, explain, say

Options = argparse.Namespace


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; the exit code: 0 done, 1 failed or not usable, 2 wrong arguments."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments and arguments[0] in PASSED_ON:
            return _pass_on(arguments[0], arguments[1:])
        options = parser().parse_args(arguments)
        run: Callable[[Options], int | None] = options.run
        return run(options) or 0
    except ClusterError as error:
        say(explain(error))
    except KeyboardInterrupt:
        say("interrupted; `up` continues, `down` removes")
    return 1


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="hack/cluster/cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = top.add_subparsers(required=True, metavar="VERB")

    def verb(name: str, run: Callable[[Options], int | None], text: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=text, description=text)
        added.set_defaults(run=run)
        return added

    verb("up", lambda _: provider.choose().up(), "start the cluster, or repair it; builds what is missing")
    verb("down", lambda _: provider.choose().down(), "remove the cluster and its data; images and binaries stay cached")
    verb("status", lambda _: 0 if provider.choose().status() else 1, "show each part; exit code 0 when all are ready")
    load = verb("load-image", lambda given: provider.choose().load_images(given.source), "give images to the node")
    load.add_argument("source", nargs="+", metavar="ARCHIVE|REFERENCE", help="a Docker or OCI archive, or buildah's")
    _add_volume(verb("volume", _volume, "make or remove a persistent volume claim that pods can use"))
    verb("kubeconfig", lambda _: print(provider.choose().kubeconfig), "print the path of the kubeconfig")
    env = verb("env", _env, "print what to put into a shell's environment")
    env.add_argument("--json", action="store_true", help="paths of kubeconfig, kubectl and helm, for programs")
    logs = verb("logs", _logs, "print a component's log")
    logs.add_argument("component", choices=sorted(LOGGED), metavar="COMPONENT", help=", ".join(sorted(LOGGED)))
    verb("build", _build, "build and cache every program, and start nothing")
    verb("prune-images", lambda _: Local().prune_images(), "remove the images that are not the cluster's own")
    verb("purge", lambda _: Local().purge(), "remove the local cluster and all that is cached")
    for name, text in PASSED_ON.items():
        verb(name, lambda _: None, text)
    control_up = verb("control-plane-up", _control_plane_up, "start only etcd and an API server; prints the kubeconfig")
    control_up.add_argument("--controllers", action="store_true", help="run the controller manager, too")
    control_down = verb("control-plane-down", lambda given: bare.down(given.dir), "stop the control plane of DIR")
    for added in (control_up, control_down):
        added.add_argument("--dir", type=Path, required=True, metavar="DIR")
    return top


PASSED_ON = {"kubectl": "run kubectl on the cluster", "helm": "run helm on the cluster"}
LOGGED = {
    "containerd",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubelet",
}


def _program(name: str) -> Path:
    return binaries.build(binaries.HELM) if name == "helm" else binaries.node_program(name)


def _pass_on(name: str, arguments: list[str]) -> int:
    """Become that program, so that its terminal, signals and exit code are its own."""
    environment = {**os.environ, "KUBECONFIG": str(provider.choose().kubeconfig)}
    program = _program(name)
    os.execve(program, [name, *arguments], environment)  # noqa: S606 - no shell is what we want


def _add_volume(volume: argparse.ArgumentParser) -> None:
    volume.add_argument("action", choices=("create", "delete"))
    volume.add_argument("namespace")
    volume.add_argument("claim")
    volume.add_argument("size", nargs="?", default="1Gi", help="default: 1Gi")


def _volume(options: Options) -> None:
    chosen = provider.choose()
    if options.action == "delete":
        chosen.delete_volume(options.namespace, options.claim)
    elif directory := chosen.create_volume(options.namespace, options.claim, options.size):
        print(directory)


def _env(options: Options) -> None:
    chosen = provider.choose()
    kubeconfig, kubectl, helm = chosen.kubeconfig, _program("kubectl"), _program("helm")
    if options.json:
        found = {"cluster": chosen.name, "kubeconfig": kubeconfig, "kubectl": kubectl, "helm": helm}
        print(json.dumps({name: str(value) for name, value in found.items()}))
        return
    print(f"export KUBECONFIG={shlex.quote(str(kubeconfig))}")
    print(f'export PATH={shlex.quote(str(kubectl.parent))}:{shlex.quote(str(helm.parent))}:"$PATH"')


def _logs(options: Options) -> None:
    log = local_cluster().log(options.component)
    if not log.exists():
        raise ClusterError(f"{options.component} has not run yet: there is no {log}")
    sys.stdout.write(log.read_text(errors="replace"))


def _build(_: Options) -> None:
    for program in binaries.PROGRAMS:
        print(binaries.build(program))


def _control_plane_up(options: Options) -> None:
    print(bare.up(options.dir, controllers=options.controllers))
