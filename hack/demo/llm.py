"""``make demo-llm``: a language model built, held against the source, served, asked in chat and scaled."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from demo import __main__ as demo
from demo import language_model, traffic, volumes
from demo.scaling import ReplicaWatch
from demo.shell import ROOT, Kube, StepError
from demo.summary import Timed
from demo.talk import going_on

NAMESPACE, MODEL, SOURCE, BROKEN = demo.LANGUAGE_MODELS, "assistant", "smollm2", "broken"
OUTPUT = ROOT / "build" / "demo-llm"
IMAGES = (*demo.ALL_IMAGES, "server-vllm")
QUESTION = "What is the capital of France? Answer in one short sentence."
# More than one replica of two cores does, by the figures of any build there.
AT_ONCE = 96
# What two replicas serve is part of the figures: for so long the load goes on after the second one is ready.
TOGETHER_SECONDS, BRIEFLY = 20, 2
# Any configuration keeps it, so that the search ends once the reference and the broken copy were tried. They have the
# time that they take on a machine with much other work. The 50th percentile takes the fewest requests to say.
CONTENT: dict[str, dict[str, Any]] = {
    "engine": {"stopWhen": "objectiveMet", "buildBudgetSeconds": 600},
    "objective": {"tokens": {"percentile": 50, "ttftMilliseconds": 60_000, "tpotMilliseconds": 10_000}}}
# Once no replica starts any more there is nothing to wait for.
SOON_DOWN = {"spec": {"autoscaling": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 5}}}}}
console = demo.console


@dataclass
class Summary(Timed):
    """Field names are the file's; times of tokens are what the load's clients saw, through the Service."""

    ready: bool = False
    server: str = ""
    precision: str = ""
    agreement: dict[str, float] = field(default_factory=dict)
    sabotaged_refused: bool = False
    requests: int = 0
    failed_requests: int = 0
    cut_streams: int = 0
    ttft_p50_ms: float = 0.0
    ttft_p99_ms: float = 0.0
    tokens_per_s: float = 0.0
    peak_replicas: int = 0
    final_replicas: int = 0
    errors: dict[str, str] = field(default_factory=dict)

    def add_load(self, load: str, result: Mapping[str, Any]) -> None:
        self.requests += int(result["requests"])
        self.failed_requests += int(result["failed"])
        self.cut_streams += int(result["cut_streams"])
        self.errors.update({f"{load}: {kind}": message for kind, message in result["messages"].items()})


def main() -> int:
    parser = argparse.ArgumentParser(prog="demo-llm", description=__doc__)
    parser.add_argument("--brief", action="store_true",
                        help="try no more than the source and its broken copy, and load two replicas for "
                             f"{BRIEFLY} s instead of {TOGETHER_SECONDS}")
    given = parser.parse_args()
    return demo.carried_out(going_on()(partial(demonstrate, given.brief)))


def demonstrate(brief: bool = False) -> None:
    summary = Summary()
    try:
        kube, images = demo.start(summary, NAMESPACE, prepare, IMAGES)
        build_and_wait(kube, summary, brief)
        judge(kube, images["operator"], summary)
        chat(kube, images["server-vllm"], summary)
        scale_up_and_down(kube, images["builder"], summary, BRIEFLY if brief else TOGETHER_SECONDS)
    finally:
        summary.write(OUTPUT / "summary.json")
    console.print_json(json.dumps(dataclasses.asdict(summary)))
    console.print(f"report  {OUTPUT / 'report.html'}\nnext    docs/how-to/language-models.md")
    if summary.failed_requests or not summary.sabotaged_refused:
        raise StepError(f"{summary.failed_requests} requests failed ({summary.errors}); the broken checkpoint was "
                        f"{'' if summary.sabotaged_refused else 'not '}refused")


def prepare(kube: Kube, image: Callable[[], str]) -> None:
    demo.say("Model: SmolLM2-135M-Instruct, a copy that is broken on purpose, and 20 prompts onto a volume")
    demo.make_claims(kube, NAMESPACE, {"models": "2Gi", "enginewright-store": "4Gi"})
    source = language_model.source()
    volumes.fill(kube, NAMESPACE, image(), {"models": {
        SOURCE: source, f"{SOURCE}-{BROKEN}": language_model.broken(source, OUTPUT / BROKEN),
        "prompts": language_model.prompts(OUTPUT / "prompts")}})


def build_and_wait(kube: Kube, summary: Summary, brief: bool) -> None:
    model = demo.built(kube, summary, NAMESPACE, MODEL, build_seconds=1800, rollout_seconds=900,
                       otherwise=CONTENT if brief else None)
    engine = model["status"]["engine"]
    summary.ready, summary.server, summary.precision = True, engine["backend"], engine["precision"]


def judge(kube: Kube, image: str, summary: Summary) -> None:
    """What the gate found, from the report in the engine store."""
    found = volumes.read(kube, NAMESPACE, "enginewright-store", image, ("build-report.json", "report.html"))
    for name, content in found.items():
        (OUTPUT / name).write_bytes(content)
    report = json.loads(found["build-report.json"])
    reference, shipped = report["trials"][0], report["serving"]
    summary.agreement = {"value": 1 - shipped["gate"]["disagreement"]["value"],
                         "noise_floor": 1 - reference["judgement"]["disagreement"]["value"],
                         "tolerance": shipped["tolerance"]}
    summary.sabotaged_refused = any(trial["name"] == f"checkpoint {BROKEN}" and trial["verdict"] == "AccuracyRefused"
                                    for trial in report["trials"])


def chat(kube: Kube, image: str, summary: Summary) -> None:
    demo.say(f"Chat, by OpenAI's client: {QUESTION}")
    with summary.timed("chat"):
        console.print(f"  {language_model.asked(kube, NAMESPACE, image, MODEL, QUESTION)}")


def scale_up_and_down(kube: Kube, image: str, summary: Summary, together_seconds: float) -> None:
    demo.say("Load until it scales up, then quiet until it scales down")
    replicas = ReplicaWatch(kube, NAMESPACE, MODEL, console)
    # Each request opens a connection. By the Service's name each would also ask DNS, which is no part of the figures.
    service = kube.json("get", "service", MODEL, "-n", NAMESPACE)["spec"]["clusterIP"]
    target = ["--url", f"http://{service}:8000", "--model", MODEL, "--json",
              "--jsonl", "/models/prompts/prompts.jsonl"]
    _start(kube, "trickle", image, [*target, "--rate", "0.2", "--seconds", "900"])
    with summary.timed("scale_up"):
        _start(kube, "surge", image, [*target, "--closed", str(AT_ONCE), "--seconds", "600"])
        replicas.until("up", 2, timeout=420)
    time.sleep(together_seconds)
    surge = _ended(kube, "surge", summary)
    summary.ttft_p50_ms, summary.ttft_p99_ms = surge["ttft_ms"]["p50"], surge["ttft_ms"]["p99"]
    summary.tokens_per_s = surge["output_rate"]
    with summary.timed("scale_down"):
        kube("patch", "optimisedmodel", MODEL, "-n", NAMESPACE, "--type=merge", "-p", json.dumps(SOON_DOWN))
        replicas.until("down", 1, timeout=240)
    _ended(kube, "trickle", summary)
    summary.peak_replicas, summary.final_replicas = replicas.peak, replicas.look()[0]


def _start(kube: Kube, name: str, image: str, arguments: Sequence[str]) -> None:
    traffic.start(kube, NAMESPACE, name, image, list(arguments), deadline=1200, program=language_model.LOAD)


def _ended(kube: Kube, name: str, summary: Summary) -> dict[str, Any]:
    """What is in flight is answered first, and each stream takes a while here."""
    traffic.stop(kube, NAMESPACE, name)
    result = traffic.finish(kube, NAMESPACE, name, timeout=240)
    summary.add_load(name, result)
    return result


if __name__ == "__main__":
    sys.exit(main())
