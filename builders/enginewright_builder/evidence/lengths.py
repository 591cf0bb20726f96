"""Whether requests of different length may run together, tried on the source model and on the engine that ships; and
what a run of that engine costs beside its positions."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from enginewright_builder.contract import Padding
from enginewright_builder.data.lengths import lengths, ranked, spread
from enginewright_builder.data.sets import SampleSet
from enginewright_builder.engines.base import Joined
from enginewright_builder.errors import TransientError, UserError, brief, classify
from enginewright_builder.evidence.frames import staircase
from enginewright_builder.models.base import SourceModel, pad_token
from enginewright_builder.models.texted import Texted, given, in_tokens
from enginewright_builder.padding import TOKENS, Fill, fill
from enginewright_builder.pod.python_model.lengths import Lengths
from enginewright_builder.tensors import Array, Tensors
from enginewright_builder.triton.prove import difference_of, similarity_of

# Largest difference between a sample alone and padded, of its answer's largest value: rounding differs by 1e-6 or so.
HARMLESS = 1e-3
# Samples that are tried, and lengths that are made of the longest where the data have too few of their own.
TRIED, LEAST_LENGTHS = 6, 3
# Lengths beyond what the data and the model say, as a multiple of the longest sample.
_HEADROOM = 2
_SHORTEST_STEP = 8
_TIMED, _TIMED_SECONDS = 5, 1.0
# What padding holds in place of silence where nothing marks it, as a multiple of the loudest that was sent.
_LOUDER = 10.0

Run = Callable[[Tensors], Tensors]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settled:
    """``samples`` are single ones of several lengths, ascending, as clients send them; none where nothing is joined."""

    joined: Joined | None = None
    samples: tuple[Tensors, ...] = ()
    notes: tuple[str, ...] = ()


def settle(source: SourceModel, stated: Padding | None, evaluation: SampleSet, *, rounded: bool = False) -> Settled:
    """How requests are joined, as the source model answers alike alone and padded. ``rounded``: lengths in steps.
    Where clients send texts it is asked with their tokens, filled up as its tokenizer does.

    Raises :class:`UserError` ``InterfaceInvalid`` where the user asks for what the source does not bear."""
    known = _known(source, stated)
    if known is None:
        return Settled()
    if known.marked:
        return _settled(source, known, stated, evaluation, rounded=rounded)
    try:
        return _settled(source, known, stated, evaluation, rounded=rounded)
    except Exception as error:  # of any library: no user has said that the model takes other lengths than its data
        if isinstance(known_error := classify(error), TransientError):  # memory that is short says nothing of the model
            raise known_error from error
        return Settled(notes=("Requests of different length are not joined: the source model does not answer parts of "
                              f"its data: {brief(error, 200)}.",))


def _settled(source: SourceModel, known: Fill, stated: Padding | None, evaluation: SampleSet, *, rounded: bool
             ) -> Settled:
    sent = ranked(evaluation, known.mask, functools.partial(given, source))
    samples = several(sent, known)
    tokens = [given(source, sample) for sample in samples]
    if len(set(lengths(tokens, known.mask).tolist())) == 1:  # what is as long as the request would not show
        return Settled(notes=("Requests of different length are not joined: all samples are of one length.",))
    joined, problem = _tried(in_tokens(source), Joined(mask=known.mask, fill=known.values, left=known.left,
                                                       marked=known.marked), tokens, known.low)
    if problem:
        if stated is not None:
            raise UserError("InterfaceInvalid", f"padding changes what the source model answers: {problem}",
                            field="spec.interface.padding", value=stated.mask,
                            remedy="name the input that makes the model ignore padding, with the values that it was "
                                   "trained with, or remove padding")
        return Settled(notes=(f"Requests of different length are not joined: padded, {problem}.",))
    own = np.array([length for (length, *_), _ in sent])
    ends = buckets(own, known)
    # The ends of buckets as well: engines are tuned for them, and have CUDA graphs of them from the start.
    rising = tuple(sorted({*ends, *steps(int(own.max()), known)})) if rounded else ()
    return Settled(samples=tuple(samples), joined=dataclasses.replace(joined, buckets=ends, steps=rising))


def _known(source: SourceModel, stated: Padding | None) -> Fill | None:
    known = fill(in_tokens(source).interface, stated, pad_token(source))
    if known is None or not isinstance(source, Texted):
        return known
    own = source.serving
    return dataclasses.replace(known, values={name: float(own.fill[name]) for name in known.values}, left=own.left)


def _tried(source: SourceModel, joined: Joined, samples: Sequence[Tensors], low: int) -> tuple[Joined, str]:
    """``joined`` with what is to be cut, and why the source does not bear it, in words; empty where it does. The source
    takes ``low`` positions at least."""
    found = lengths(samples, joined.mask)
    apart = [source.run(sample) for sample in samples]
    together = source.run(_padded(joined, samples, int(found.max())))
    joined = dataclasses.replace(joined, cut=_following(apart, together, found))
    if not joined.left:
        shortest = low if low > 1 else int(found.min())
        joined = dataclasses.replace(joined, frames=_framed(source, joined, samples[int(found.argmax())], apart,
                                                            shortest))
    problem = _differs(joined, samples, apart, together)
    return joined, problem if problem or joined.marked else _heeds_padding(source, joined, samples, apart)


def _framed(source: SourceModel, joined: Joined, longest: Tensors, apart: Sequence[Tensors], low: int
            ) -> dict[str, tuple[tuple[int, int, int], ...]]:
    """The sizes of outputs that grow with the request by a rule, which answers to parts of the longest show."""
    @functools.cache
    def shapes(length: int) -> dict[str, tuple[int, ...]]:
        answers = source.run(_part(longest, joined.fill, length))
        return {name: array.shape for name, array in answers.items()}

    def frames(name: str, axis: int) -> tuple[tuple[int, int, int], ...]:
        found = staircase(lambda length: shapes(length)[name][axis], low, longest[joined.mask].shape[1])
        return ((axis, *found),) if found else ()

    growing = {name: [axis for axis in range(1, answer.ndim) if axis not in joined.cut.get(name, ())
                      and len({one[name].shape[axis] for one in apart}) > 1] for name, answer in apart[0].items()}
    rules = {name: tuple(rule for axis in axes for rule in frames(name, axis)) for name, axes in growing.items()}
    return {name: found for name, found in rules.items() if found}


def _heeds_padding(source: SourceModel, joined: Joined, samples: Sequence[Tensors], apart: Sequence[Tensors]) -> str:
    """In words; empty where it does not. Without a mask silence may be harmless by chance, as to a maximum: answers
    must not change with what padding holds, either."""
    loudest = max(float(np.abs(sample[joined.mask]).max(initial=0.0)) for sample in samples) or 1.0
    loud = min(_LOUDER * loudest, float(np.finfo(samples[0][joined.mask].dtype).max))
    for value in (loud, -loud):
        other = dataclasses.replace(joined, fill={joined.mask: value})
        together = source.run(_padded(other, samples, int(lengths(samples, joined.mask).max())))
        if problem := _differs(other, samples, apart, together):
            return f"with {value:.3g} in the place of silence {problem}"
    return ""


def several(ranked: Sequence[tuple[tuple[int, ...], Tensors]], known: Fill) -> list[Tensors]:
    """A few samples from the shortest to the longest; parts of the longest where all are of nearly one length."""
    if len({length for (length, *_), _ in ranked}) >= LEAST_LENGTHS:
        return spread([sample for _, sample in ranked], TRIED)
    (length, *_), longest = ranked[-1]
    if known.mask not in longest:
        return [_part_of_texts(longest, part / LEAST_LENGTHS) for part in range(1, LEAST_LENGTHS + 1)]
    parts = sorted({max(known.low, length * part // LEAST_LENGTHS) for part in range(1, LEAST_LENGTHS + 1)})
    return [_part(longest, known.values, part) for part in parts]


def _part(sample: Tensors, as_long: Mapping[str, float], length: int) -> Tensors:
    """The beginning of a sample, of texts with the token that ends them: some models answer there."""
    part = {name: array[:, :length].copy() if name in as_long else array for name, array in sample.items()}
    if TOKENS in as_long:
        part[TOKENS][:, -1] = sample[TOKENS][:, -1]
    return part


def _part_of_texts(sample: Tensors, share: float) -> Tensors:
    """The beginning of each text."""
    def begun(text: str) -> str:
        return text[:max(1, round(len(text) * share))]

    return {name: np.array([[begun(text) for text in row] for row in array], np.object_)
            for name, array in sample.items()}


def buckets(own: Array, known: Fill) -> tuple[int, ...]:
    """Up to the median of the lengths, up to their longest, and the rest of what the model takes."""
    longest = int(own.max())
    high = known.high or _HEADROOM * longest
    return tuple(sorted({min(int(np.median(own)), high), min(longest, high), high}))


def steps(longest: int, known: Fill) -> tuple[int, ...]:
    """Powers of two and half way between, within what the model takes: no length grows by more than a half."""
    high = known.high or _HEADROOM * longest
    found, step = {high}, _SHORTEST_STEP
    while step < high:
        found |= {size for size in (step, step + step // 2) if known.low <= size <= high}
        step *= 2
    return tuple(sorted(found))


def borne_by(run: Run, joined: Joined, samples: Sequence[Tensors], tolerance: float) -> str:
    """Why an engine must not join requests, in words; empty where it may. Unlike the source it may round what it is
    given together otherwise than alone, as far as the gate lets it."""
    filler = Lengths(joined.described)
    together = run(_padded(joined, samples, int(lengths(samples, joined.mask).max())))
    for number, sample in enumerate(samples):
        mine = filler.cut_back({name: array[number:number + 1] for name, array in together.items()},
                               filler.of(sample))
        answers = run(sample)
        for name in answers:
            if not (alike := similarity_of(name, mine, answers)) >= 1 - tolerance:
                return f"output {name!r} agrees by {alike:.4f} with the answer to the same request alone"
    return ""


def run_positions(run: Run, joined: Joined, samples: Sequence[Tensors], largest: int) -> float:
    """What a run costs however little is in it, in positions: of the time of the shortest sample alone, and of
    ``largest`` of the one in the middle. Longer ones cost more than their share, as attention grows with the square."""
    small, one = samples[0], samples[len(samples) // 2]
    large = {name: np.repeat(array, largest, axis=0) for name, array in one.items()}
    few, many = (float(np.prod(inputs[joined.mask].shape)) for inputs in (small, large))
    if many <= few:
        return 0.0
    quick, slow = _seconds(run, small), _seconds(run, large)
    each = max(0.0, slow - quick) / (many - few)
    return max(0.0, min(quick / each - few, many)) if each else many


def _seconds(run: Run, inputs: Tensors) -> float:
    """Of one run, the quickest of a few: other work only ever adds time."""
    run(inputs)
    taken: list[float] = []
    while len(taken) < _TIMED and sum(taken) < _TIMED_SECONDS:
        began = time.perf_counter()
        run(inputs)
        taken.append(time.perf_counter() - began)
    return min(taken)


def _padded(joined: Joined, samples: Sequence[Tensors], length: int) -> Tensors:
    filler = Lengths(joined.described)
    filled = [filler.filled(dict(sample), length) for sample in samples]
    return {name: np.concatenate([one[name] for one in filled]) for name in filled[0]}


def _following(apart: Sequence[Tensors], together: Tensors, found: Array) -> dict[str, tuple[int, ...]]:
    """The sizes of outputs that are as long as the request, alone and together."""
    return {name: axes for name, joint in together.items() if (axes := tuple(
        axis for axis in range(1, joint.ndim) if joint.shape[axis] == found.max()
        and all(answer[name].ndim == joint.ndim and answer[name].shape[axis] == length
                for answer, length in zip(apart, found, strict=True))))}


def _differs(joined: Joined, samples: Sequence[Tensors], apart: Sequence[Tensors], together: Tensors) -> str:
    filler = Lengths(joined.described)
    for number, (sample, expected) in enumerate(zip(samples, apart, strict=True)):
        mine = filler.cut_back({name: array[number:number + 1] for name, array in together.items()}, filler.of(sample))
        for name, answer in expected.items():
            if mine[name].shape != answer.shape:
                return (f"output {name!r} has the shape {list(mine[name].shape[1:])}, and alone "
                        f"{list(answer.shape[1:])}")
            if not (off := difference_of(name, mine, expected)) <= HARMLESS:
                return f"output {name!r} differs by {off:.2g} of its largest value from the answer to a request alone"
    return ""
