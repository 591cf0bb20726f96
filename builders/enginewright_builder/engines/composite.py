"""Several engines as one model: each batch is answered by the first member that takes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from enginewright_builder.engines.around import is_around
from enginewright_builder.engines.base import Artifact, Engine, Member, Rung, Runner
from enginewright_builder.tensors import Call, Tensors, count


def combine(members: Sequence[Member]) -> Artifact:
    """One artifact of ``members``, two at least, ascending by ``up_to``; one artifact may serve several ranges.

    The files of each lie in a folder of their own (``m0/``, ``m1/``…), but for what stands around all of them.
    Triton's Python backend runs it, also members that a native backend could run alone. Raises ``ValueError`` for
    members out of order or of other interfaces.
    """
    limits = [member.up_to for member in members]
    if len(members) < 2 or limits != sorted(set(limits)):
        raise ValueError(f"a composite needs members ascending by their largest batch, not {limits}")
    first, *others = (member.artifact for member in members)
    if any(other.interface != first.interface for other in others):
        raise ValueError("the members of a composite differ in their interface")
    folders = member_folders(members)
    files = {name if is_around(name) else f"{folder}/{name}": path
             for member, folder in zip(members, folders, strict=True) for name, path in member.artifact.files.items()}
    return Artifact(
        rung=Rung(backend=_joined(one.artifact.rung.backend for one in members),
                  precision=_joined(one.artifact.rung.precision for one in members)),
        files=files, triton_backend="python", python_runtime=runtime(first), interface=first.interface,
        runtime_version=", ".join(dict.fromkeys(one.artifact.runtime_version for one in members)),
        members=tuple(members))


def member_folders(members: Sequence[Member]) -> list[str]:
    """The folder of each member's files; members that are the same artifact share one."""
    distinct = list({id(member.artifact): None for member in members})
    return [f"m{distinct.index(id(member.artifact))}" for member in members]


def runtime(artifact: Artifact) -> str:
    """The library that runs this artifact where Python does, even if a native backend would run it alone."""
    return artifact.python_runtime if artifact.triton_backend == "python" else artifact.triton_backend


class CompositeRunner:
    """The members of a composite in this process. Raises ``ValueError`` for a batch above the largest member's."""

    def __init__(self, artifact: Artifact, engines: Sequence[Engine]) -> None:
        by_name = {engine.name: engine for engine in engines}
        self._opened: dict[str, Runner] = {}
        self._members: list[tuple[int, Runner]] = []
        try:
            for member, folder in zip(artifact.members, member_folders(artifact.members), strict=True):
                if folder not in self._opened:
                    self._opened[folder] = by_name[member.artifact.rung.backend].load(member.artifact)
                self._members.append((member.up_to, self._opened[folder]))
        except BaseException:
            self.close()
            raise

    def __call__(self, inputs: Tensors) -> Tensors:
        return self._of(inputs)(inputs)

    def bind(self, inputs: Tensors) -> Call:
        return self._of(inputs).bind(inputs)

    def close(self) -> None:
        for runner in self._opened.values():
            runner.close()
        self._opened.clear()

    def _of(self, inputs: Tensors) -> Runner:
        return self.member(count(inputs))

    def member(self, batch: int) -> Runner:
        """Who answers ``batch``. Raises ``ValueError`` as a call does."""
        for up_to, runner in self._members:
            if batch <= up_to:
                return runner
        raise ValueError(f"a batch of {batch} is above the largest of this composite, {self._members[-1][0]}")


def _joined(names: Iterable[str]) -> str:
    return "+".join(dict.fromkeys(names))
