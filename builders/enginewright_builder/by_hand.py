"""``enginewright-build --model … --output …``: a build without Kubernetes, on this machine and for it."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from enginewright_builder.by_hand_words import in_options
from enginewright_builder.contract import (
    AGREEMENT,
    BUDGET_SECONDS,
    GENERATE_BUDGET_SECONDS,
    LANGUAGE_MODEL_FOLDER,
    MODEL_FOLDER,
    MODEL_REPOSITORY,
    AccuracyRequest,
    BuildRequest,
    CheckpointRequest,
    ContractError,
    DataRequest,
    DeviceRequest,
    EngineRequest,
    GenerateRequest,
    ObjectiveRequest,
    RuntimeRequest,
    SourceRequest,
    TaskRequest,
    quoted,
)
from enginewright_builder.errors import UserError, exit_code
from enginewright_builder.installed import versions
from enginewright_builder.pipeline import failure, run_build
from enginewright_builder.pod.device import devices
from enginewright_builder.progress import JsonLines, Sink, Tracker, own_stdout
from enginewright_builder.spec_interface import read_interface

INFER, GENERATE = "infer", "generate"
# Options that say nothing of the other task.
_OF_GENERATE = ("ttft_ms", "tpot_ms", "context", "checkpoint", "draft")
_OF_INFER = ("format", "calibration", "metric", "task_metric", "labels", "task_tolerance", "task_output", "queries",
             "threshold", "group_by", "precision", "backend", "fallback", "max_batch_size", "latency_ms",
             "interface", "profile")
# Libraries that the Python backend may run an engine with.
PYTHON_RUNTIMES = ("onnxruntime", "tensorrt", "torch")


def build_by_hand(options: argparse.Namespace) -> int:
    stream = own_stdout()
    # Imported here: rich is not in the builder image.
    if options.json or not stream.isatty():
        sink: Sink = JsonLines(stream)
    else:
        from enginewright_builder.terminal import Terminal

        sink = Terminal(stream)
    output = Path(options.output).expanduser().resolve()
    tracker = Tracker(sink)
    with tempfile.TemporaryDirectory(prefix="enginewright-build-", ignore_cleanup_errors=True) as scratch:
        try:
            output.mkdir(parents=True, exist_ok=True)
            request = hand_request(options, output)
        except ContractError as error:  # of an option: no operator has written the request
            refused = UserError("RequestInvalid", str(error), remedy="enginewright-build --help lists the options")
            outcome = failure("build", refused, tracker)
        except BaseException as error:
            outcome = failure("build", error, tracker)
        else:
            outcome = run_build(request, Path(scratch), tracker)
    sink.outcome(in_options(outcome))
    if outcome.ok:
        folder = output / outcome.fingerprint
        sys.stderr.write(f"engine and report: {folder}\n"
                         f"to serve it as model {request.model_name}: {_served_by(request, folder)}\n")
    return exit_code(outcome)


def _served_by(request: BuildRequest, folder: Path) -> str:
    if request.generate is None:
        models = link_model(folder.parent, folder.name, request.model_name)
        return f"tritonserver --model-repository={models}"
    from enginewright_builder.generate.serving import read_serving

    return read_serving(folder).command(folder / LANGUAGE_MODEL_FOLDER, request.model_name)


def link_model(output: Path, fingerprint: str, name: str) -> Path:
    """``<output>/models/<name>``, a link to the engine's model folder: engines have no name, a person's have. Returns
    the folder of links, which is a model repository. A link of that name to another engine is replaced."""
    models = output / "models"
    models.mkdir(exist_ok=True)
    fresh = models / f".{name}.{os.getpid()}"
    fresh.symlink_to(Path("..", fingerprint, MODEL_REPOSITORY, MODEL_FOLDER))
    fresh.replace(models / name)
    return models


def _name_of(source: str) -> str:
    """Of the file or folder, without a revision or tag and the ending that says what the file is."""
    last = unquote(source.rstrip("/").rpartition("/")[2]).partition("@")[0].lower()
    if source.startswith("oci://"):
        last = last.partition(":")[0]
    return re.sub(r"[^a-z0-9-]+", "-", re.sub(r"\.(onnx|pt2?|ts|pth|zip|keras)$", "", last)).strip("-") or "model"


def hand_request(options: argparse.Namespace, output: Path) -> BuildRequest:
    """The request that the operator would make of the same wishes. Raises :class:`ContractError`."""
    name = options.name or _name_of(options.model)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise ContractError(f"--name: got {name!r}, expected letters, digits, '.', '_' and '-'")
    _check_task(options)
    if options.task == GENERATE:
        return _generate_request(options, output, name)
    interface = read_interface(options.interface) if options.interface else None
    calibration = DataRequest(uri=options.calibration) if options.calibration else None
    evaluation = DataRequest(uri=options.evaluation) if options.evaluation else None
    return BuildRequest(
        model_name=name, source=SourceRequest(uri=options.model, format=options.format), interface=interface,
        engine=EngineRequest(backend=options.backend, precision=options.precision, calibration=calibration,
                             max_batch_size=options.max_batch_size, fallback=options.fallback,
                             stop_when=options.stop_when, profile=options.profile,
                             build_budget_seconds=options.budget_seconds or BUDGET_SECONDS[options.accelerator]),
        accuracy=AccuracyRequest(metric=options.metric, tolerance=options.tolerance, evaluation=evaluation,
                                 task=_task(options), group_by=options.group_by),
        objective=ObjectiveRequest(latency_ms=options.latency_ms), store_path=str(output),
        device=hand_device(options.accelerator), runtime=hand_runtime(options.accelerator, options.backend),
        builder_image=hand_builder())


def _generate_request(options: argparse.Namespace, output: Path, name: str) -> BuildRequest:
    """It also raises :class:`UserError` ``VllmMissing``."""
    from enginewright_builder.generate.packages import version

    evaluation = DataRequest(uri=options.evaluation) if options.evaluation else None
    return BuildRequest(
        model_name=name, source=SourceRequest(uri=options.model),
        engine=EngineRequest(build_budget_seconds=options.budget_seconds or GENERATE_BUDGET_SECONDS,
                             stop_when=options.stop_when),
        accuracy=AccuracyRequest(metric=AGREEMENT, tolerance=options.tolerance, evaluation=evaluation),
        store_path=str(output), device=hand_device(options.accelerator),
        # By hand there is no image: the version of the server stands for it.
        runtime=RuntimeRequest(server_image=f"vllm {version()}", backends=(), python_runtimes=()),
        builder_image=hand_builder(),
        generate=GenerateRequest(ttft_ms=options.ttft_ms, tpot_ms=options.tpot_ms, context_tokens=options.context,
                                 checkpoints=_listed("--checkpoint", options.checkpoint, "awq"),
                                 drafts=_listed("--draft", options.draft, "small")))


def _listed(option: str, given: Sequence[str], such_as: str) -> tuple[CheckpointRequest, ...]:
    """Raises :class:`ContractError`."""
    found = []
    for word in given:
        name, equals, uri = word.partition("=")
        if not (name and equals and uri):
            raise ContractError(f"{option}: got {word!r}, expected NAME=URI, such as {such_as}=path/to/folder")
        found.append(CheckpointRequest(name=name, uri=uri))
    return tuple(found)


def _check_task(options: argparse.Namespace) -> None:
    """Raises :class:`ContractError` for what says nothing of this task."""
    generates, parser = options.task == GENERATE, _parser()
    for name in _OF_INFER if generates else _OF_GENERATE:
        if getattr(options, name) != parser.get_default(name):
            raise ContractError(f"--{name.replace('_', '-')}: got {quoted(getattr(options, name))}, and it "
                                f"{'does not apply' if generates else 'applies'} to language models; "
                                f"{'leave it out' if generates else 'leave it out, or add --task generate'}")


def _task(options: argparse.Namespace) -> TaskRequest | None:
    """Raises :class:`ContractError`."""
    if options.task_metric:
        return TaskRequest(metric=options.task_metric, labels=options.labels or TaskRequest.labels,
                           tolerance=TaskRequest.tolerance if options.task_tolerance is None else
                           options.task_tolerance, output=options.task_output,
                           queries=options.queries, threshold=options.threshold)
    given = [name for name in ("labels", "task_tolerance", "task_output", "queries", "threshold")
             if getattr(options, name) not in ("", None)]
    if given:
        raise ContractError(f"--{given[0].replace('_', '-')}: it says how labels are used; add --task-metric, such as "
                            "accuracy")
    return None


def hand_device(accelerator: str) -> DeviceRequest:
    """This machine. Raises :class:`ContractError` where a GPU is asked for and there is none."""
    if accelerator != "gpu":
        return DeviceRequest(accelerator="cpu", architecture=platform.machine())
    found = next(iter(devices()), None)
    if found is None:
        raise ContractError("--accelerator: got 'gpu', but CUDA's driver finds no NVIDIA GPU here; write cpu")
    return DeviceRequest(accelerator="gpu", products=(found.product,), mig_profile=found.mig_profile,
                         memory_bytes=found.memory_bytes, gpu_count=1, architecture=platform.machine())


def hand_builder() -> str:
    """By hand there is no image: the versions of what an image would hold stand for it, so that an upgrade of one is
    another build."""
    return f"by hand: {', '.join(f'{name} {version}' for name, version in versions().items())}"


def hand_runtime(accelerator: str, backend: str) -> RuntimeRequest:
    """Triton runs with this process's Python, so it has what this one has. On a CPU that is ONNX Runtime and what
    ``backend`` names: to compile with PyTorch takes longer than all else together, for a candidate that INT8 beats."""
    wanted = PYTHON_RUNTIMES if accelerator == "gpu" else ("onnxruntime", backend)
    return RuntimeRequest(python_runtimes=tuple(
        name for name in PYTHON_RUNTIMES if name in wanted and importlib.util.find_spec(name)))


def parse_by_hand(words: Sequence[str]) -> argparse.Namespace:
    return _parser().parse_args(words)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="enginewright-build", description="Turn a model into a proven, optimised Triton model repository, with a "
                                               "report.",
        epilog="In a Job: enginewright-build resolve|build --request FILE. Remove engines: enginewright-build "
               "gc --help. What can be built here: enginewright-build doctor. MLPerf's scenarios on an engine: "
               "enginewright-build mlperf --help. Exit status: 0 published, 2 yours to "
               "mend, 3 worth another try, 1 a bug.")
    parser.add_argument("--model", required=True, metavar="URI",
                        help="folder, file, or address of the model: https://, hf://, oci://, s3:// or gs://")
    parser.add_argument("--output", required=True, metavar="DIR", help="engine store; created if absent")
    parser.add_argument("--name", metavar="NAME", help="model name on Triton (default: the source's)")
    parser.add_argument("--format", default="auto", help="onnx, huggingface, exported-program, torchscript, "
                        "saved-model, keras (default auto)")
    _add_accuracy(parser)
    parser.add_argument("--precision", default="auto", help="auto, fp32, int8, … (default auto: the ladder)")
    parser.add_argument("--backend", default="auto", help="auto, onnxruntime, tensorrt, torch (default auto)")
    parser.add_argument("--fallback", choices=("none", "source"), default=EngineRequest.fallback,
                        help="what to build when no candidate may be served (default %(default)s)")
    parser.add_argument("--accelerator", choices=("cpu", "gpu"), default="gpu" if devices() else "cpu",
                        help="what to build on and for (default here: %(default)s)")
    parser.add_argument("--max-batch-size", type=int, default=EngineRequest.max_batch_size, metavar="N")
    parser.add_argument("--latency-ms", type=float, default=0.0, metavar="MS", help="99th percentile to keep under")
    parser.add_argument("--budget-seconds", type=int, metavar="S",
                        help="time for building and measuring (default 300 on a GPU, 1800 on a CPU and for language "
                             "models)")
    parser.add_argument("--stop-when", choices=("budgetSpent", "objectiveMet"), default=EngineRequest.stop_when,
                        help="objectiveMet: try no more once one meets --latency-ms, or for language models the times "
                             "of tokens (default %(default)s)")
    parser.add_argument("--profile", action="store_true",
                        help="leave traces of the engine's layers beside the report, which Perfetto opens")
    parser.add_argument("--interface", metavar="JSON", help="spec.interface of an OptimisedModel, as kubectl get "
                        "om NAME -o jsonpath='{.spec.interface}' prints it; needed where the source does not state it")
    parser.add_argument("--json", action="store_true", help="JSON lines, as in a Job and where no terminal reads them")
    _add_language_models(parser)
    return parser


def _add_accuracy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--evaluation", metavar="FILE", help=".npz or .jsonl that candidates are held against the "
                        "source on")
    parser.add_argument("--calibration", metavar="FILE", help=".npz or .jsonl for static INT8; other samples than "
                        "these")
    parser.add_argument("--metric", default=AccuracyRequest.metric,
                        help="cosine, relative-error, top1, spearman; onnx: metric.onnx beside the model; python:NAME: "
                             "an entry point of the group enginewright.metrics (default %(default)s)")
    parser.add_argument("--tolerance", type=float, default=AccuracyRequest.tolerance,
                        help="largest loss allowed, of 1 (default %(default)s)")
    parser.add_argument("--task-metric", default="", metavar="METRIC",
                        help="hold candidates against labels, too: accuracy, top5, f1-macro, f1-micro, ndcg, wer, mae, "
                             "rmse, map, map50")
    parser.add_argument("--labels", default="", metavar="NAME", help="array or field of the evaluation data that has "
                        "the labels (default label)")
    parser.add_argument("--task-tolerance", type=float, metavar="LOSS", help="largest loss on the labels against the "
                        "source's own (default 0.01)")
    parser.add_argument("--task-output", default="", metavar="NAME", help="the model's output to look at (default: the "
                        "first)")
    parser.add_argument("--queries", default="", metavar="NAME", help="ndcg: array or field that says of which query a "
                        "sample is")
    parser.add_argument("--threshold", type=float, metavar="X", help="from where on a number means yes (default: 0.5 "
                        "of probabilities, else 0)")
    parser.add_argument("--group-by", default="", metavar="NAME", help="array or field of the evaluation data that "
                        "names each sample's group: the gate holds in each")


def _add_language_models(parser: argparse.ArgumentParser) -> None:
    language = parser.add_argument_group("language models")
    language.add_argument("--task", choices=(INFER, GENERATE), default=INFER,
                          help="generate: a causal language model, which vLLM serves; --evaluation is then a .jsonl of "
                               "prompts (default %(default)s)")
    language.add_argument("--ttft-ms", type=float, default=0.0, metavar="MS",
                          help="time until the first token that 99 %% of requests keep under")
    language.add_argument("--tpot-ms", type=float, default=0.0, metavar="MS",
                          help="and time for each token after it")
    language.add_argument("--context", type=int, default=0, metavar="TOKENS",
                          help="longest prompt and answer together (default: the model's)")
    language.add_argument("--checkpoint", action="append", default=[], metavar="NAME=URI",
                          help="other weights of the same model, such as quantised ones, which compete with the "
                               "source's; may be given up to 8 times")
    language.add_argument("--draft", action="append", default=[], metavar="NAME=URI",
                          help="a smaller model of the same vocabulary, which proposes tokens to the source; may be "
                               "given up to 4 times")
