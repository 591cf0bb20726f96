"""``make demo``: each step says what it does and what it found; the first that fails says where to look."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.text import Text

from demo import inference, sentences, traffic, volumes, watch
from demo.reference import reference_embeddings
from demo.scaling import ReplicaWatch
from demo.shell import CLUSTER, IMAGES, MODELS, ROOT, Kube, StepError, beside, run
from demo.summary import Summary, Timed
from demo.talk import going_on
from enginewright.plugin.history import filled, history
from enginewright.plugin.screen import lines
from enginewright.plugin.words import explain as explained
from enginewright_builder.contract import printable

NAMESPACE = "enginewright-demo"
LANGUAGE_MODELS = "enginewright-demo-llm"  # of make demo-llm
SYSTEM_NAMESPACE = "enginewright-system"
MODEL = "minilm"
OUTPUT = ROOT / "build" / "demo"
REPORT = "build-report.json", "report.html"
ALL_IMAGES = ("operator", "builder", "server")
IN_IMAGE = {"builder": "PyTorch, ONNX Runtime", "server": "Triton", "server-vllm": "vLLM"}
IN_CHART = {"server-vllm": "serverVllm"}
# For programs and images that no cache has. On two cores beside other work, Kubernetes took over half an hour to build.
COLD_SECONDS = 7200
# A build once spent 92 s before its first candidate, beside other work.
BUSY_BUDGET_SECONDS = 150
# Registries of this machine: they speak plain HTTP, as container runtimes expect of them.
LOOPBACK = ("localhost", "127.0.0.1")
CLUSTERS = {"local": "Kubernetes: a real node on this machine", "kind": "Kubernetes: a cluster of kind's",
            "existing": "Kubernetes: the cluster of your kubeconfig"}

# Words of a cluster are no markup.
console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)


def main() -> int:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--clean", action="store_true", help="remove the demos, and their cluster "
                                                              "unless CLUSTER=existing")
    parser.add_argument("--budget-seconds", type=int, metavar="S",
                        help="time budget of the build (default: minilm.yaml's, more on a busy machine)")
    given = parser.parse_args()
    return carried_out(clean if given.clean else going_on()(partial(demonstrate, given.budget_seconds)))


def carried_out(steps: Callable[[], None]) -> int:
    """The exit status; says where ``steps`` stopped."""
    try:
        steps()
    except StepError as failure:
        console.print(Text.assemble(("The demo stopped:", "bold red"), f" {printable(str(failure))}"))
        return 1
    return 0


def demonstrate(budget_seconds: int | None = None) -> None:
    """``budget_seconds``: of the build."""
    summary, texts = Summary(), [text for pair in inference.SHOWCASE for text in pair]
    if budget_seconds is None and is_busy():  # asked before the demo itself is what the machine is busy with
        budget_seconds = BUSY_BUDGET_SECONDS
    OUTPUT.mkdir(parents=True, exist_ok=True)
    try:
        with ThreadPoolExecutor() as beside_it:
            # Takes seconds of two cores, which hardly do anything while the cluster starts, and are the build's after.
            expected = beside_it.submit(reference_embeddings, texts)
            kube, images = start(summary, NAMESPACE, prepare_volumes)
            build_and_wait(kube, summary, budget_seconds)
            # Their pods start meanwhile.
            loads = beside_it.submit(start_loads, kube, images["builder"])
            first_inference(kube, summary, texts, expected.result())
            replicas = scale_up(kube, loads, summary)
            # It was written with the engine; the pod that reads it starts while the scaler waits.
            report = beside_it.submit(volumes.read, kube, NAMESPACE, "enginewright-store", images["operator"], REPORT)
            scale_down(kube, replicas, summary)
            write_report(kube, report.result())
    finally:
        summary.write(OUTPUT / "summary.json")
    summary.show(console)
    console.print(f"report  {OUTPUT / 'report.html'}\nfigures {OUTPUT / 'summary.json'}\n{next_steps()}")
    if summary.failed_requests or not summary.ready:
        raise StepError(f"{summary.failed_requests} requests failed: "
                        + "; ".join(f"{load}: {message}" for load, message in summary.errors.items()))


def start(summary: Timed, namespace: str, prepare: Callable[[Kube, Callable[[], str]], None],
          names: Sequence[str] = ALL_IMAGES) -> tuple[Kube, dict[str, str]]:
    """The cluster with the operator in it, and in ``namespace`` what ``prepare`` makes, and nothing of an earlier demo.
    Building images waits for packages most of the time, so that it goes on beside the compiler of the cluster's
    programs. An earlier demo goes, claims are made and volumes are filled while the node gets the images and the
    operator starts: ``prepare`` is given what waits for the operator's image."""
    registry_to_push_to()  # before anything is started
    with beside(IMAGES, "build", *names), ThreadPoolExecutor() as beside_it:
        with summary.timed("cluster"):
            start_cluster()
            kube = Kube.of_cluster()
        loaded = beside_it.submit(summary.timed("images")(load_images), names)

        def instead_of_an_earlier_demo() -> None:
            remove_model(kube, namespace)
            prepare(kube, lambda: loaded.result()["operator"])

        prepared = beside_it.submit(instead_of_an_earlier_demo)
        images = loaded.result()
        with summary.timed("operator"):
            install(kube, images)
        prepared.result()
    return kube, images


def start_cluster() -> None:
    say(CLUSTERS.get(os.environ.get("CLUSTER", ""), CLUSTERS["local"]))
    run(CLUSTER, "up", quiet=False, timeout=COLD_SECONDS)


def next_steps() -> str:
    """What to paste into a shell in the repository's root, and where to read on."""
    chosen = f"CLUSTER={found} " if (found := os.environ.get("CLUSTER")) else ""
    return (f'look    eval "$({chosen}hack/cluster/cluster env)"  # KUBECONFIG, kubectl and helm\n'
            f'        export PATH="{Path(sys.prefix) / "bin"}:$PATH"  # kubectl optimisedmodel\n'
            f"        kubectl optimisedmodel explain {MODEL} -n {NAMESPACE}\n"
            "next    docs/tutorial.md")


def say(text: str) -> None:
    console.print(Text(printable(f"▸ {text}"), style="bold"))


def load_images(names: Sequence[str] = ALL_IMAGES) -> dict[str, str]:
    """Builds what changed and gives it to the cluster; returns image references by name."""
    say(f"Images: {', '.join(f'{name} ({IN_IMAGE[name]})' if name in IN_IMAGE else name for name in names)}")
    if registry := registry_to_push_to():
        options = ("--insecure",) if registry.startswith(LOOPBACK) else ()
        pushed: dict[str, str] = json.loads(run(IMAGES, "push", registry, *options, *names, quiet=False,
                                                timeout=COLD_SECONDS))
        return pushed
    built = json.loads(run(IMAGES, "build", "--json", *names, quiet=False, timeout=COLD_SECONDS))
    run(CLUSTER, "load-image", *(built[name]["archive"] for name in names), quiet=False, timeout=900)
    return {name: built[name]["reference"] for name in names}


def registry_to_push_to() -> str:
    """An existing cluster pulls its images; empty where they can be handed over. Raises :class:`StepError`."""
    if os.environ.get("CLUSTER") != "existing":
        return ""
    registry = os.environ.get("IMAGE_REGISTRY", "")
    if not registry:
        raise StepError("CLUSTER=existing needs IMAGE_REGISTRY: write host[:port][/path] of a registry that you may "
                        "push to and the cluster pulls from, such as registry.example.com/enginewright")
    return registry


def install(kube: Kube, images: dict[str, str]) -> None:
    say("Operator: helm upgrade --install enginewright")
    values = {"images": {IN_CHART.get(name, name): {"reference": image} for name, image in images.items()}}
    kube.upgrade_install("enginewright", SYSTEM_NAMESPACE, ROOT / "charts" / "enginewright", values)


def prepare_volumes(kube: Kube, image: Callable[[], str]) -> None:
    say("Model: all-MiniLM-L6-v2 (22 M parameters, real weights) and sentences onto a volume")
    make_claims(kube, NAMESPACE, {"models": "1Gi", "enginewright-store": "4Gi"})
    sentences.write(OUTPUT / "sentences")
    volumes.fill(kube, NAMESPACE, image(), {"models": {"all-minilm-l6-v2": inference.model_directory(),
                                                       "sentences": OUTPUT / "sentences"}})


def make_claims(kube: Kube, namespace: str, sizes: Mapping[str, str]) -> None:
    """In a new namespace; ``sizes`` by claim."""
    kube.make_namespace(namespace)
    _at_once(["create", namespace, claim, size] for claim, size in sizes.items())


def _at_once(volumes: Iterable[Sequence[str]]) -> None:
    with ThreadPoolExecutor() as beside_it:
        list(beside_it.map(lambda words: run(CLUSTER, "volume", *words), volumes))


def build_and_wait(kube: Kube, summary: Summary, budget_seconds: int | None = None) -> None:
    model = built(kube, summary, NAMESPACE, MODEL, build_seconds=600, rollout_seconds=600,
                  otherwise={"engine": {"buildBudgetSeconds": budget_seconds}} if budget_seconds else None)
    engine = model["status"]["engine"]
    summary.ready = True
    summary.backend, summary.precision = engine["backend"], engine["precision"]
    summary.speedup_vs_reference = engine["speedup"]
    accuracy = model["spec"]["accuracy"]
    summary.accuracy = {"metric": accuracy["metric"], "value": engine["accuracy"], "tolerance": accuracy["maxLoss"]}


@contextlib.contextmanager
def disturbed() -> Iterator[None]:
    """Says of a build that failed on a busy machine that this may be why: it measured other work, too."""
    try:
        yield
    except StepError as failure:
        if not is_busy():
            raise
        raise StepError(f"{failure}\n  This machine is busy (on {len(os.sched_getaffinity(0))} cores), and a build "
                        "measures: repeat it when other work has ended.") from failure


def is_busy() -> bool:
    """Whether more wants to run than this machine has cores for: a build's time would be over before its first
    candidate. Looks for a second, as the load average remembers a demo that ended a minute ago."""
    return statistics.fmean(want_to_run()) > len(os.sched_getaffinity(0))


def want_to_run(looks: int = 10) -> Iterator[int]:
    """How many other threads of this machine run or wait for a core, a tenth of a second apart."""
    for _ in range(looks):
        time.sleep(0.1)
        found = re.search(r"^procs_running (\d+)$", Path("/proc/stat").read_text(), re.MULTILINE)
        yield int(found[1]) - 1 if found else 0


def built(kube: Kube, summary: Timed, namespace: str, name: str, *, build_seconds: float, rollout_seconds: float,
          otherwise: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """Applies ``name``.yaml, with ``otherwise`` in its blocks below ``spec``, and shows what competed; returns the
    OptimisedModel once it is ready. Raises :class:`StepError`."""
    changes = ", ".join(f"spec.{block}.{field}: {json.dumps(value)}" for block, fields in (otherwise or {}).items()
                     for field, value in fields.items())
    say(f"kubectl apply -f hack/demo/{name}.yaml" + (f"   with {changes}" if changes else ""))
    wanted = yaml.safe_load(Path(__file__).with_name(f"{name}.yaml").read_text())
    for block, fields in (otherwise or {}).items():
        wanted["spec"].setdefault(block, {}).update(fields)
    with summary.timed("ready"):
        with summary.timed("build"), disturbed():
            kube("apply", "-f", "-", stdin=json.dumps(wanted))
            watch.wait_for(kube, namespace, name, "EngineBuilt", timeout=build_seconds)
        model = watch.wait_for(kube, namespace, name, "Ready", timeout=rollout_seconds)
    for candidate in model["status"].get("candidates", []):
        label = candidate.get("name") or f"{candidate['backend']} {candidate['precision']}"
        console.print(printable(f"  {label:<36} {candidate['verdict']:<16} {candidate.get('reason', '')}"))
    console.print(kube("get", "om", "-n", namespace).rstrip())
    return model


def first_inference(kube: Kube, summary: Summary, texts: list[str], reference: inference.Embeddings) -> None:
    """``reference`` are the unoptimised PyTorch model's answers to ``texts``."""
    say("Real sentences through Triton, and through the unoptimised PyTorch model")
    with summary.timed("first_inference"), inference.forwarded(kube, NAMESPACE, f"service/{MODEL}", 8000) as address:
        served = inference.served_embeddings(address, MODEL, texts)
    for index, (left, right) in enumerate(inference.SHOWCASE):
        ours = float(served[2 * index] @ served[2 * index + 1])
        theirs = float(reference[2 * index] @ reference[2 * index + 1])
        console.print(f"  {ours:6.3f} Triton  {theirs:6.3f} PyTorch   {left} | {right}")


def start_loads(kube: Kube, image: str) -> None:
    target = ["--url", f"{MODEL}.{NAMESPACE}.svc:8001", "--model", MODEL, "--reconnect-seconds", "2", "--json",
              "--jsonl", "/models/sentences/evaluation.jsonl"]
    traffic.start(kube, NAMESPACE, "trickle", image, [*target, "--rate", "2", "--seconds", "480"])
    traffic.start(kube, NAMESPACE, "surge", image, [*target, "--closed", "128", "--seconds", "240"])


def scale_up(kube: Kube, loads: Future[None], summary: Summary) -> ReplicaWatch:
    """The surge has ended afterwards, the trickle goes on."""
    say("Load until it scales up, then quiet until it scales down")
    replicas = ReplicaWatch(kube, NAMESPACE, MODEL, console)
    with summary.timed("scale_up"):
        loads.result()
        replicas.until("up", 2, timeout=240)
    # The scaler counts arrivals of the last half minute: a load that went on for longer would be remembered longer.
    traffic.stop(kube, NAMESPACE, "surge")
    summary.add_load("surge", traffic.finish(kube, NAMESPACE, "surge", timeout=240))
    return replicas


def scale_down(kube: Kube, replicas: ReplicaWatch, summary: Summary) -> None:
    with summary.timed("scale_down"):
        replicas.until("down", 1, timeout=240)
    traffic.stop(kube, NAMESPACE, "trickle")
    summary.add_load("trickle", traffic.finish(kube, NAMESPACE, "trickle", timeout=240))
    summary.peak_replicas, summary.final_replicas = replicas.peak, replicas.look()[0]


def write_report(kube: Kube, files: dict[str, bytes]) -> None:
    say("Evidence: the build report out of the engine store")
    for name, content in files.items():
        (OUTPUT / name).write_bytes(content)
    # As the plugin's report and explain do.
    file, model = OUTPUT / "report.html", kube.json("get", "optimisedmodel", MODEL, "-n", NAMESPACE)
    page = file.read_text()
    file.write_text(filled(page, history(model, datetime.now(UTC))) or page)
    (OUTPUT / "explain.txt").write_text("\n".join(lines(explained(model, datetime.now(UTC)))) + "\n")


def remove_model(kube: Kube, namespace: str = NAMESPACE) -> None:
    """The namespace of an earlier demo, its volumes and all."""
    kube.remove_namespace(namespace)
    _at_once(["delete", namespace, claim] for claim in ("models", "enginewright-store"))


def clean() -> None:
    if os.environ.get("CLUSTER") != "existing":
        run(CLUSTER, "down", quiet=False)
        return
    kube = Kube.of_cluster()
    remove_model(kube)
    remove_model(kube, LANGUAGE_MODELS)
    kube.uninstall("enginewright", SYSTEM_NAMESPACE)
    kube("delete", "crd", MODELS, "--ignore-not-found")


if __name__ == "__main__":
    sys.exit(main())
