"""A graph that is quantised beside the builds: ModelOpt's process, which never uses the GPU, where it would disturb
what TensorRT measures. It is stopped while candidates are timed. No build needs it: what it could not write is written
again, alone, when its turn comes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from enginewright_builder.engines.base import BuildContext
from enginewright_builder.engines.beside import BesideProcess, environment
from enginewright_builder.engines.modelopt_graphs import QUANTIZE, Job, check_written, command
from enginewright_builder.errors import BuilderError
from enginewright_builder.tensors import Tensors

_FOLDER = "beside"


class GraphAhead:
    """Of one precision; see :class:`BesideProcess`."""

    makes_engine = False

    def __init__(self, job: Job, process: BesideProcess) -> None:
        self._job, self.process = job, process
        self.pause, self.resume, self.cancel = process.pause, process.resume, process.cancel

    @classmethod
    def started(cls, precision: str, source: Path, target: Path, batches: Sequence[Tensors]) -> GraphAhead:
        """``target`` is where :meth:`finish` will be asked to put it."""
        job = Job(task=QUANTIZE, source=str(source), target=str(target.parent / _FOLDER / target.name),
                  precision=precision, beside=True)
        words = command(job, batches)
        return cls(job, BesideProcess.started(words, {**environment(), "CUDA_VISIBLE_DEVICES": ""},
                                              Path(job.target).parent))

    @property
    def running(self) -> bool:
        return self.process.running

    @property
    def made(self) -> bool:
        return not self.running and Path(self._job.target).is_file()

    def finish(self, target: Path, context: BuildContext) -> bool:
        """Waits for it, and moves what it wrote to ``target``, a name as it was started with. False where it failed, of
        whatever cause: alone, and with the GPU, it may go well. Raises :class:`OutOfTimeError`."""
        if self.process.cancelled:
            return False
        if self.running:
            context.progress(0.02, f"waiting for the {self._job.precision} graph that is written beside the builds")
        try:
            check_written(self._job, *self.process.ended(context.time_left()))
        except BuilderError as error:
            context.progress(0.02, f"the {self._job.precision} graph is written again, alone: {error.message}")
            return False
        written = Path(self._job.target)
        for path in written.parent.glob(f"{written.name}*"):  # and its weights, where they are too large for it
            os.replace(path, target.parent / path.name)
        return True
