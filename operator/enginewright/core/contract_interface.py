"""``spec.interface`` in the contract's terms, with what a user left out filled in."""

from __future__ import annotations

from dataclasses import replace

from enginewright.core.spec.interface import (
    DetectionSpec,
    ImageSizeSpec,
    InputSpec,
    InterfaceSpec,
    PaddingSpec,
    PostprocessStepSpec,
    PreprocessSpec,
    PythonStepsSpec,
    SequenceBatchingSpec,
    TensorSpec,
)
from enginewright_builder import contract


def contract_interface(interface: InterfaceSpec) -> contract.Interface:
    return contract.Interface(inputs=tuple(_input(one) for one in interface.inputs),
                              outputs=tuple(_tensor(one) for one in interface.outputs),
                              postprocess=tuple(map(_step, interface.postprocess)),
                              padding=_padding(interface.padding) if interface.padding else None,
                              sequence_batching=_sequences(interface.sequence_batching)
                              if interface.sequence_batching else None,
                              python_steps=_python_steps(interface.python_steps) if interface.python_steps else None)


def _python_steps(steps: PythonStepsSpec) -> contract.PythonSteps:
    return contract.PythonSteps(preprocess=steps.preprocess or "", postprocess=steps.postprocess or "",
                                files=steps.files)


def _sequences(how: SequenceBatchingSpec) -> contract.SequenceBatching:
    return contract.SequenceBatching(
        state=tuple(contract.StateTensor(input_name=one.input_name, output_name=one.output_name,
                                         data_file=one.data_file or "") for one in how.state),
        max_sequence_idle_us=how.max_sequence_idle_microseconds, max_candidate_sequences=how.max_candidate_sequences)


def _padding(padding: PaddingSpec) -> contract.Padding:
    return contract.Padding(mask=padding.mask, values=tuple(contract.PadValue(input=one.input, value=one.value)
                                                            for one in padding.values))


def _step(step: PostprocessStepSpec) -> contract.PostprocessStep:
    mask = step.mask or ("attention_mask" if step.function == "meanPooling" else "")
    return contract.PostprocessStep(output=step.output, function=step.function, mask=mask, axis=step.axis or 0,
                                    k=step.k or 0, detection=_detection(step.detection) if step.detection else None)


def _detection(how: DetectionSpec) -> contract.Detection:
    return contract.Detection(
        boxes=how.boxes, box_format=how.box_format, box_unit=how.box_unit, scoring=how.scoring,
        background=how.background, threshold=how.threshold, nms_threshold=how.nms_threshold or 0.0,
        target_sizes=how.target_sizes, from_source=how.from_source)


def _tensor(tensor: TensorSpec) -> contract.TensorSpec:
    return contract.TensorSpec(name=tensor.name, dtype=tensor.dtype, shape=tensor.shape)


def _input(tensor: InputSpec) -> contract.TensorSpec:
    how = tensor.normalise
    normalise = contract.Normalise(scale=how.scale, mean=how.mean, std=how.std,
                                   channels=how.channels) if how else None
    return replace(_tensor(tensor), normalise=normalise,
                   preprocess=_preprocess(tensor.preprocess) if tensor.preprocess else None,
                   value=tensor.value or ())


def _preprocess(how: PreprocessSpec) -> contract.Preprocess:
    size, crop = how.size or ImageSizeSpec(), how.crop_size
    return contract.Preprocess(
        from_source=how.from_source, height=size.height or 0, width=size.width or 0,
        shortest_edge=size.shortest_edge or 0, resample=how.resample or "bilinear",
        crop_height=crop.height if crop else 0, crop_width=crop.width if crop else 0)
