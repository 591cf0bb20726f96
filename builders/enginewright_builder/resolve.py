"""What can be known before any device is used: is everything there, whole, safe, and of which content?

No PyTorch: this runs in a small pod, in a second or so plus the time to hash.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from enginewright_builder.accuracy.groups import check_groups
from enginewright_builder.accuracy.label_fit import (
    check_best,
    check_detection,
    check_fit,
    check_no_detection,
    output_of,
)
from enginewright_builder.accuracy.metric_fit import TOP1, check_classes_last
from enginewright_builder.accuracy.metric_graph import find_metric
from enginewright_builder.accuracy.rules import check_gate
from enginewright_builder.accuracy.task_rules import check_task, check_units, columns
from enginewright_builder.accuracy.vocabulary import Vocabulary
from enginewright_builder.best_few import indices_of
from enginewright_builder.constants import check_constants, constants_of, without_constants
from enginewright_builder.contract import BuildRequest, DataRequest, Interface, ResolvedSource, TensorSpec
from enginewright_builder.data import captured
from enginewright_builder.data.files import (
    CALIBRATION,
    EVALUATION,
    DataField,
    SampleFile,
    check_against,
    check_overlap,
    note_left_out,
    note_rounded,
    read_samples,
)
from enginewright_builder.data.labels import check_columns, contradictions, groups_of, labels_of, queries_of, vocabulary
from enginewright_builder.detection import MADE, check_detection_source, detections_in
from enginewright_builder.engine_store import store
from enginewright_builder.engines.registry import check_choice
from enginewright_builder.errors import UserError
from enginewright_builder.ids import ID_TYPES
from enginewright_builder.initial_state import check_folder, with_files
from enginewright_builder.normalise import taken
from enginewright_builder.own_steps import answered, check_request, check_steps, of_source, sent
from enginewright_builder.padding import fill
from enginewright_builder.postprocess import best_few_in, finished, without_steps
from enginewright_builder.preprocess import asked, check, check_source
from enginewright_builder.sequences import check_sequences, fixed, in_steps
from enginewright_builder.shapes import STRING, checked, is_batch
from enginewright_builder.sources import places, tensorflow_packages
from enginewright_builder.sources.base import FetchContext
from enginewright_builder.sources.fetching import fetch
from enginewright_builder.sources.formats import Located, locate, size_bytes
from enginewright_builder.sources.saved_model import signature_interface
from enginewright_builder.sources.signature import asked_for
from enginewright_builder.sources.torchscript import TORCHSCRIPT, needs_interface
from enginewright_builder.texts import check_texts, text_input

# Formats that say their inputs to who only reads them.
_TELLING = ("onnx", tensorflow_packages.SAVED_MODEL)


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """``request`` has all digests and the format filled in, so that the same content has the same fingerprint. Sample
    files are None where the user gave none, ``metric_graph`` where accuracy is measured by one of the known metrics,
    ``vocabulary`` unless words are compared."""

    request: BuildRequest
    located: Located
    source: ResolvedSource
    evaluation: SampleFile | None
    calibration: SampleFile | None
    metric_graph: Path | None
    notes: tuple[str, ...]
    vocabulary: Vocabulary | None = None


def resolve(request: BuildRequest, scratch: Path) -> Resolved:
    """Raises :class:`UserError` with the field to change, :class:`TransientError` when trying again may help."""
    _check_before_fetch(request)
    path, digest = fetch(request.source.uri, FetchContext(mounts=request.mounts, scratch=scratch / places.SOURCE,
                                                         digest=request.source.digest,
                                                         check=asked_for(request.signature)))
    located = locate(path, request.source.format, scratch / places.UNPACKED)
    beside = path if path.is_dir() else located.path  # where a model's further files are
    _check_source(request, path, located)
    metric_graph = find_metric(request.accuracy.metric, beside)
    _check_top1(located, request)
    notes = list(located.notes)
    half, other = captured.halves(request)
    evaluation, evaluation_digest = _data(request, located, captured.evaluation_of(request), EVALUATION,
                                          scratch / places.EVALUATION, half, notes)
    calibration, calibration_digest = _data(request, located, captured.calibration_of(request, evaluation_digest),
                                            CALIBRATION, scratch / places.CALIBRATION, other, notes)
    words = vocabulary(request.accuracy.task, beside) if request.accuracy.task else None
    evaluation = _evaluation(request, located, beside, evaluation, notes)
    calibration = _calibration(request, located, evaluation, calibration, notes)
    source = ResolvedSource(digest=digest, format=located.format, size_bytes=size_bytes(path),
                            evaluation_digest=evaluation_digest, calibration_digest=calibration_digest)
    request = _with_digests(request, source)
    # What is there already takes no room, nor the right to write.
    if request.store_path and not (engines := store.of(request)).holds(request.fingerprint()):
        engines.check_writable(source.size_bytes)
    return Resolved(request=request, located=located, source=source, evaluation=evaluation,
                    calibration=calibration, metric_graph=metric_graph, notes=tuple(notes), vocabulary=words)


def _check_before_fetch(request: BuildRequest) -> None:
    """What can be known before anything is fetched."""
    check_choice(request.engine.backend, request.engine.precision, request.device)
    check_gate(request.accuracy.metric, request.accuracy.tolerance)
    check_task(request.accuracy)
    captured.check_no_labels(request)
    _check_numbers(request)
    check_request(request)
    stated = without_steps(of_source(request.interface))
    if stated is not None and stated.inputs:
        checked(stated, shapes_known=True)


def _check_source(request: BuildRequest, path: Path, located: Located) -> None:
    """The source at ``path`` beside what the interface states of it."""
    own = of_source(request.interface)
    stated = without_steps(own)
    if request.interface is not None and request.interface.sequence_batching:
        check_sequences(located.format, request.interface)
        check_folder(request.interface, path)
        _check_beside_sequences(request)
    check_constants(located.format, own)
    check_steps(path, located, request.interface)
    check_texts(located, stated)
    for index, step in enumerate(request.interface.postprocess if request.interface else ()):
        check_detection_source(located, step, f"spec.interface.postprocess[{index}].detection.fromSource")
    _check_images(located, stated)
    _check_format(located, own)


def _evaluation(request: BuildRequest, located: Located, beside: Path, samples: SampleFile | None,
                notes: list[str]) -> SampleFile | None:
    """With labels from ``beside`` the model, where accuracy goes by them."""
    if samples is None:
        return None
    samples = check_columns(samples, request.accuracy, beside)
    samples = _distinct(_fitting(located, request.interface, samples, EVALUATION), "evaluation", notes)
    check_gate(request.accuracy.metric, request.accuracy.tolerance, len(samples))
    _check_beside(located, request, samples, notes)
    return samples


def _calibration(request: BuildRequest, located: Located, evaluation: SampleFile | None, samples: SampleFile | None,
                 notes: list[str]) -> SampleFile | None:
    if samples is None:
        return None
    samples = _distinct(_fitting(located, request.interface, samples, CALIBRATION), "calibration", notes)
    return samples if evaluation is None else _apart(request, evaluation, samples, notes)


def _check_numbers(request: BuildRequest) -> None:
    for field, value in (("maxBatchSize", request.engine.max_batch_size),
                         ("buildBudgetSeconds", request.engine.build_budget_seconds)):
        if value < 1:
            raise UserError("RequestInvalid", f"{value} is no {field}", field=f"spec.engine.{field}", value=value,
                            remedy="write a positive number")


def _check_beside_sequences(request: BuildRequest) -> None:
    """The operator refuses these, too; a build by hand has no operator."""
    beside = (("spec.engine.backend", request.engine.backend, request.engine.backend in ("tensorrt", "torch"),
               "write auto or onnxruntime"),
              ("spec.accuracy.task", "task", request.accuracy.task is not None, "leave it out"),
              ("spec.quality", "quality", request.keep_reference, "leave it out"))
    for field, value, given, remedy in beside:
        if given:
            raise UserError("RequestInvalid", "cannot stand beside spec.interface.sequenceBatching", field=field,
                            value=value, remedy=f"{remedy}, or let clients carry the state")


def _check_format(located: Located, own: Interface | None) -> None:
    """What the format needs beside the source, and what the source tells of its inputs."""
    if located.format in tensorflow_packages.FORMATS:
        tensorflow_packages.packages()
    if located.format == TORCHSCRIPT and not (own and own.inputs):
        raise needs_interface(located.path)
    if located.format in _TELLING:
        _own_interface(located, own)


def _check_images(located: Located, stated: Interface | None) -> None:
    for spec in checked(stated, shapes_known=True).inputs if stated and stated.inputs else ():
        check_source(located, spec)
        check(spec)


def _data(request: BuildRequest, located: Located, data: DataRequest | None, where: DataField,
          scratch: Path, part: slice, notes: list[str]) -> tuple[SampleFile | None, str]:
    if data is None:
        return None, ""
    if data.samples < 0:
        field = where.path.removesuffix("uri") + "samples"
        raise UserError(where.reason, f"{data.samples} samples", field=field, value=data.samples,
                        remedy="write a positive number, or 0 for all")
    if captured.is_captured(data):
        path, digest, note = captured.fetch_capture(request, data, where, scratch)
        notes.append(note)
    else:
        path, digest = fetch(data.uri, FetchContext(mounts=request.mounts, scratch=scratch, field=where.path,
                                                    digest=data.digest))
    words = (located.format == "onnx" or text_input(request.interface) is not None
             or any(spec.dtype == STRING for spec in sent(request.interface)))
    samples = read_samples(path, where, columns(request.accuracy), words=words)
    return captured.part_of(samples, part).limited(data.samples), digest


def _fitting(located: Located, interface: Interface | None, samples: SampleFile, where: DataField) -> SampleFile:
    """Samples in the model's own types, as far as these are known without PyTorch; the build checks again."""
    if asked_with := sent(interface):
        return check_against(samples, Interface(inputs=asked_with), where)
    interface = of_source(interface)
    if spec := text_input(interface):
        return check_against(samples, Interface(inputs=(spec,)), where)
    if located.format == "huggingface" and samples.texts and not _has_tokenizer(located.path):
        raise where.invalid("the file holds texts, but the model's folder has no tokenizer", "text",
                            "copy the tokenizer's files beside config.json, or give tokenised arrays")
    prepares = asked(interface)
    if located.format in _TELLING and not prepares:
        samples = check_against(samples, _own_interface(located, interface), where, missing=_takes_missing(located))
    if located.format != "huggingface" and samples.texts:
        raise where.invalid(f"the file holds texts, but {located.format} sources bring no tokenizer", "text",
                            "give arrays named as the model's inputs, in .npz or .jsonl")
    if interface is not None and interface.inputs and (located.format not in _TELLING or prepares):
        # Outputs may be named without a shape, which says nothing of a batch.
        known = dataclasses.replace(without_constants(interface),
                                    outputs=tuple(spec for spec in interface.outputs if spec.shape))
        return check_against(samples, _with_single_samples(checked(known)), where)
    return samples


def _takes_missing(located: Located) -> bool:
    if located.format != "onnx":
        return False
    import onnx

    from enginewright_builder.onnx_interface import takes_missing

    return takes_missing(onnx.load(str(located.path), load_external_data=False))


def _own_interface(located: Located, stated: Interface | None) -> Interface:
    """Of a source that tells it without being opened. Raises :class:`UserError` ``InterfaceInvalid``."""
    import onnx

    from enginewright_builder.onnx_interface import merged, with_batch, written_interface
    from enginewright_builder.onnx_outputs import settle_outputs

    if located.format == tensorflow_packages.SAVED_MODEL:
        written = signature_interface(located.path)
    else:
        model = onnx.load(str(located.path), load_external_data=False)
        settle_outputs(model, stated)
        written = written_interface(model)
    values = constants_of(written, stated)
    found = with_batch(dataclasses.replace(written, inputs=tuple(spec for spec in written.inputs
                                                                 if spec.name not in values)))
    stated = without_constants(stated) if stated else None
    if stated is not None and stated.inputs:
        found = merged(found, taken(stated))
    if stated is not None and stated.sequence_batching:
        return in_steps(with_files(fixed(found, stated.sequence_batching), located.path.parent))
    found = _with_single_samples(found)
    if stated is not None and stated.padding is not None:
        fill(found, stated.padding)
    if stated is None:
        return found
    images = {spec.name: spec for spec in stated.inputs if spec.preprocess}
    sent = dataclasses.replace(found, inputs=tuple(images.get(spec.name, spec) for spec in found.inputs))
    return dataclasses.replace(finished(sent, stated.postprocess), inputs=found.inputs)


def _with_single_samples(interface: Interface) -> Interface:
    """With the batch in front also where it is frozen: whether it can be freed is tried by the build, and samples are
    single ones either way."""
    from enginewright_builder.onnx_interface import freed_interface, frozen_batch  # it imports onnx

    return freed_interface(interface) if frozen_batch(interface) else interface


def _check_beside(located: Located, request: BuildRequest, evaluation: SampleFile, notes: list[str]) -> None:
    """Labels and groups, against what is known of the model's answers without PyTorch; the build checks again."""
    accuracy = request.accuracy
    queries = queries_of(evaluation.columns)
    if groups := groups_of(evaluation.columns, accuracy.group_by):
        notes += filter(None, [check_groups(accuracy, groups.of_sample, queries)])
    if accuracy.task is None:
        return
    check_units(accuracy.task, len(set(queries)) or len(evaluation))
    outputs = _known_outputs(located, request)
    if not outputs:
        return
    named = {spec.name: spec for spec in outputs}
    output = output_of(accuracy.task, list(named))
    if check_detection(accuracy.task, output, list(named)):
        return
    steps = request.interface.postprocess if request.interface else ()
    if detections_in(steps) and output in MADE:
        check_no_detection(accuracy.task, output)
    if best := best_few_in(steps, output):
        check_best(accuracy.task, indices_of(best.output), best.k, labels_of(evaluation.columns))
        return
    if shape := named[output].shape:  # it may be left out
        check_fit(accuracy.task, output, shape[1:], labels_of(evaluation.columns),
                  whole=named[output].dtype in ID_TYPES)


def _known_outputs(located: Located, request: BuildRequest) -> tuple[TensorSpec, ...]:
    """As clients get them, as far as they are known without opening the source; a stated one may lack its shape."""
    tells = located.format in _TELLING and not answered(request.interface)
    known = _own_interface(located, of_source(request.interface)) if tells else request.interface
    if not tells and request.interface and request.interface.postprocess:
        return ()
    return answered(request.interface) or (known.outputs if known else ())


def _check_top1(located: Located, request: BuildRequest) -> None:
    """Where the batch is known to stand in front; the build checks again."""
    if request.accuracy.metric != TOP1 or (request.interface and request.interface.sequence_batching):
        return
    known = [spec for spec in _known_outputs(located, request) if spec.shape]
    if all(is_batch(spec.shape[0]) for spec in known):
        check_classes_last(TOP1, known, batched=True)


def _has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"))


def _distinct(samples: SampleFile, which: str, notes: list[str]) -> SampleFile:
    notes.extend(note_left_out(samples.left_out, which))
    notes.extend(note_rounded(samples.rounded, which))
    distinct = samples.distinct()
    if repeated := len(samples) - len(distinct):
        notes.append(f"{repeated} of {len(samples)} {which} samples are there more than once: they count once")
        if contrary := contradictions(samples):
            notes.append(f"{contrary} of these {'has' if contrary == 1 else 'have'} another label than in "
                         f"{'its' if contrary == 1 else 'their'} first place, which is the one that counts")
    return distinct


def _apart(request: BuildRequest, evaluation: SampleFile, calibration: SampleFile, notes: list[str]) -> SampleFile:
    """Calibration samples that the evaluation does not hold. Raises ``CalibrationEqualsEvaluation``."""
    shared = set(evaluation.keys()) & set(calibration.keys())
    check_overlap(len(shared), len(evaluation), len(calibration),
                  request.engine.calibration.uri if request.engine.calibration else "")
    if not shared:
        return calibration
    notes.append(f"left {len(shared)} calibration samples out that are evaluation samples too")
    return calibration.without(shared)


def _with_digests(request: BuildRequest, source: ResolvedSource) -> BuildRequest:
    engine, accuracy = request.engine, request.accuracy
    if engine.calibration is not None:
        engine = dataclasses.replace(engine, calibration=dataclasses.replace(
            engine.calibration, digest=source.calibration_digest))
    if accuracy.evaluation is not None:
        accuracy = dataclasses.replace(accuracy, evaluation=dataclasses.replace(
            accuracy.evaluation, digest=source.evaluation_digest))
    found = dataclasses.replace(request.source, digest=source.digest, format=source.format)
    return dataclasses.replace(request, source=found, engine=engine, accuracy=accuracy)


