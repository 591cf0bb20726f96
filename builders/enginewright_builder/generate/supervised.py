"""vLLM in another container of this pod: a supervisor there (:mod:`enginewright_builder.supervise`) starts it.

What it writes is the word of an image that the user chose. It is read as a stranger's: figures are made of it, and
nothing but the answers by HTTP decides what ships.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from enginewright_builder.contract import ContractError, dumps, load
from enginewright_builder.engine_store.manifest import plain_file
from enginewright_builder.errors import TransientError, UserError
from enginewright_builder.generate import hand_over
from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.server import POLL_SECONDS, Vllm
from enginewright_builder.machine import Machine
from enginewright_builder.supervise import (
    CHECKPOINTS,
    END_SECONDS,
    LOG,
    LOG_BYTES,
    MACHINE,
    STATE,
    WANTED,
    State,
    Wanted,
    write,
)
from enginewright_builder.triton.process import KILL_SECONDS

# A state has some 100 bytes, a machine some 5 KB of flags.
DOCUMENT_BYTES = 64 << 10
# A container has begun before the prover's does; its Python is up within seconds.
MACHINE_SECONDS = 300.0
# Memory is measured each second. The supervisor ends a server within this, by force at last.
MEASURED_SECONDS, ENDED_SECONDS = 10.0, END_SECONDS + KILL_SECONDS + 10.0
T = TypeVar("T")


@dataclass(frozen=True)
class Supervised:
    """Makes servers, as :class:`enginewright_builder.generate.trial.Open`, one at a time. Their model is the folder
    that the supervisor knows: of the same files. A hand-over's checkpoint is the one of that name there, and so is a
    draft."""

    control: Path
    witness: Path

    def __call__(self, folder: Path, arguments: ServerArguments, *, ready_seconds: float,
                 draft: Path | None = None) -> SupervisedServer:
        listed = folder.parent.name == CHECKPOINTS and hand_over.left(folder.parent.parent)
        checkpoint = folder.name if listed else ""
        return SupervisedServer(self, arguments, ready_seconds=ready_seconds, checkpoint=checkpoint,
                                draft=draft.name if draft else "")

    def look(self, patience: float = MACHINE_SECONDS) -> Machine:
        """At what the supervisor's container sees. Raises :class:`TransientError` ``ServerSilent`` where nothing comes
        within ``patience`` seconds, and :class:`UserError` ``ServerLoadFailed`` for what is no such document."""
        deadline = time.monotonic() + patience
        while not (self.witness / MACHINE).exists():
            if time.monotonic() > deadline:
                raise TransientError("ServerSilent", f"the server's container has not said within {patience:.0f} s "
                                     "what it sees of its device", remedy="read the log of the container named server")
            time.sleep(POLL_SECONDS)
        try:
            return load(Machine, _text(self.witness / MACHINE, DOCUMENT_BYTES))
        except (OSError, ContractError) as error:
            raise UserError("ServerLoadFailed", f"what the server's container says of its device is not valid: {error}",
                            field="spec.engine", remedy="use the server image that belongs to this builder") from error

    def state(self) -> State:
        """An empty one where there is none, or none that can be read."""
        with contextlib.suppress(OSError, ContractError):
            return load(State, _text(self.witness / STATE, DOCUMENT_BYTES))
        return State()


class SupervisedServer(Vllm):
    """vLLM that a supervisor starts. Where several are entered, the last one runs."""

    def __init__(self, place: Supervised, arguments: ServerArguments, *, ready_seconds: float,
                 checkpoint: str = "", draft: str = "") -> None:
        super().__init__(arguments, ready_seconds=ready_seconds)
        self._place, self._id, self._checkpoint, self._draft = place, "", checkpoint, draft

    async def memory_bytes(self) -> int:
        """The second measurement from now has begun after now."""
        before, deadline = self._state(), time.monotonic() + MEASURED_SECONDS
        while before and time.monotonic() < deadline:
            now = self._state()
            if now is None or now.status is not None:
                break
            if now.measured >= before.measured + 2:
                return now.memory_bytes
            await asyncio.sleep(POLL_SECONDS)
        return 0

    async def _begin(self, port: int) -> None:
        self._id = uuid.uuid4().hex
        self._want(Wanted(id=self._id, words=tuple(self.words()), environment=self.variables(), port=port,
                          checkpoint=self._checkpoint, draft=self._draft))

    def _status(self) -> int | None:
        state = self._state()
        return state.status if state else None

    def _log(self) -> str:
        """Nothing of the one before: its log stays until this one has written."""
        if self._state() is None:
            return ""
        try:
            return _text(self._place.witness / LOG, 4 * LOG_BYTES)
        except OSError:
            return ""

    async def _end(self) -> None:
        """Waits until none of its processes is left. Where that does not come, the next start says so."""
        if not self._id:
            return
        self._id, nothing = "", Wanted(id=uuid.uuid4().hex)
        self._want(nothing)
        for _ in range(round(ENDED_SECONDS / POLL_SECONDS)):
            if self._place.state().id == nothing.id:
                return
            await asyncio.sleep(POLL_SECONDS)

    def _want(self, wanted: Wanted) -> None:
        write(self._place.control / WANTED, dumps(wanted))

    def _state(self) -> State | None:
        """None until the supervisor has taken it up."""
        state = self._place.state()
        return state if self._id and state.id == self._id else None


def _text(file: Path, most: int) -> str:
    """Of a plain file, ``most`` bytes at most. Raises :class:`OSError`."""
    with plain_file(file) as reader:
        return reader.read(most).decode(errors="replace")
