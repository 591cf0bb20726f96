"""``serving.json``: how the server of a published model is started, and what it was proven to do so."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from enginewright_builder import contract
from enginewright_builder.contract import CONTRACT_VERSION, DRAFT_FOLDER, SERVING_FILE, with_draft
from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.gate import Judgement
from enginewright_builder.generate.server import PROVEN_WORDS
from enginewright_builder.generate.shipping import Result
from enginewright_builder.generate.sweep import Aim, Point

SERVER = "vllm"


@dataclass(frozen=True, kw_only=True)
class Serving:
    """``words`` are of vLLM's command line, after ``serve`` and the folder; ``DRAFT_PLACE`` in them stands for the
    folder of the draft, where ``settings`` name one. ``load`` is what was measured of just these
    settings, ``gate`` how they were held against the unquantised model. ``checkpoint`` names the one whose files were
    published; empty where they are the source's."""

    name: str
    precision: str
    server: str
    server_version: str
    settings: ServerArguments
    words: tuple[str, ...]
    environment: Mapping[str, str]
    aim: Aim
    load: Point
    gate: Judgement
    tolerance: float
    start_seconds: float
    memory_bytes: int
    checkpoint: str = ""
    version: int = CONTRACT_VERSION

    def command(self, folder: Path, name: str) -> str:
        """For a shell that has vLLM; the model is in ``folder``, a draft beside it, and clients call it ``name``."""
        variables = [f"{key}={shlex.quote(value)}" for key, value in sorted(self.environment.items())]
        given = with_draft(self.words, str(folder.parent / DRAFT_FOLDER))
        words = shlex.join(["vllm", "serve", str(folder), f"--served-model-name={name}", *given])
        return " ".join([*variables, words])


def serving(result: Result, aim: Aim, tolerance: float) -> Serving:
    shipped = result.shipped
    if shipped.judgement is None:
        raise ValueError("only what was held against the reference ships")
    return Serving(
        name=shipped.name, precision=shipped.precision, server=SERVER, server_version=result.known.version,
        settings=shipped.arguments, words=(*PROVEN_WORDS, *shipped.arguments.words()),
        environment=shipped.arguments.environment(), aim=aim, load=shipped.best, gate=shipped.judgement,
        tolerance=tolerance, start_seconds=shipped.start_seconds, memory_bytes=shipped.memory_bytes,
        checkpoint=shipped.checkpoint)


def write_serving(document: Serving, folder: Path) -> None:
    (folder / SERVING_FILE).write_text(contract.dumps(document, indent=2) + "\n", encoding="utf-8")


def read_serving(folder: Path) -> Serving:
    """Raises :class:`enginewright_builder.contract.ContractError`."""
    return contract.load(Serving, (folder / SERVING_FILE).read_text(encoding="utf-8"))
