"""Does this server give the answers that its engine was proven with? A replica's start-up probe, before any traffic.

Standard library only, and nothing of this package: the serving pod's init container copies this file beside the
recorded answers, and the server image's own ``python3`` runs it, whatever else is in that image::

    python3 -I -S smoke.py --model=NAME [--data=FILE] [--port=8000] [--ready=/v2/health/ready] [--seconds=60]
        [--server-pid=1]

Exit status 1, at once, while the server is not ready. Once it is, each recorded batch is sent (``seconds`` is for all
together), and every output is held against the source model's own answer. NaN, an error, no answer in time, or a
difference above what was measured when the engine was proven and the slack recorded with it, end the container; its
termination message then says why, for the operator to read. Of a language model prompts are recorded, with the first
tokens of the unquantised model's answers: too few of them end the container as well. Exit status 0 when all is well,
and for an engine that was published before answers were recorded, as soon as the server is ready.
"""

from __future__ import annotations

import array
import contextlib
import math
import operator
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from email.message import Message

HOST = "127.0.0.1"
# How the termination message begins, by which the operator knows it.
FAILED = "smoke test failed: "
TERMINATION_LOG = "/dev/termination-log"
READY_SECONDS = 2.0
# Entries turned into Python numbers at once: the server's memory limit is no place for millions of them.
CHUNK = 1 << 16
TYPECODES = {"BOOL": "B", "INT8": "b", "UINT8": "B", "INT16": "h", "UINT16": "H", "INT32": "i", "UINT32": "I",
             "INT64": "q", "UINT64": "Q", "FP32": "f", "FP64": "d", "FP16": "e", "BF16": "H"}
# Of the sequence that is sent where the model keeps state: no client's request comes before this program is content.
SEQUENCE = 1
TEXTS = "BYTES"
FLOATING = ("FP16", "BF16", "FP32", "FP64")


class NotReadyError(Exception):
    """The server is still loading."""


class SmokeTestError(Exception):
    """The server is ready and does not answer as its engine was proven; the message has the figures."""


def distance(datatype: str, answer: bytes, reference: bytes) -> float:
    """``‖answer − reference‖ / ‖reference‖`` over all entries, the bare norm where the reference is zero; of whole
    numbers and texts the share of entries that differ. Infinite for another size, NaN or infinite where the answer is
    and the reference is not: what is finite in neither (masked logits) is left out."""
    if datatype == TEXTS:
        mine, theirs = entries(answer), entries(reference)
        return sum(map(operator.ne, mine, theirs)) / max(1, len(theirs)) if len(mine) == len(theirs) else math.inf
    if len(answer) != len(reference):
        return math.inf
    if datatype not in FLOATING:
        found, wanted = array.array(TYPECODES[datatype], answer), array.array(TYPECODES[datatype], reference)
        return float(sum(map(operator.ne, found, wanted))) / max(1, len(wanted))
    gaps, sizes = [], []
    width = 2 if datatype in ("FP16", "BF16") else 4 if datatype == "FP32" else 8
    for start in range(0, len(answer), CHUNK * width):
        one, other = (numbers(datatype, data[start:start + CHUNK * width]) for data in (answer, reference))
        if not math.isfinite(math.hypot(*other)):
            pairs = [(mine, theirs) for mine, theirs in zip(one, other, strict=True)
                     if math.isfinite(mine) or math.isfinite(theirs)]
            one, other = [mine for mine, _ in pairs], [theirs for _, theirs in pairs]
        gaps.append(math.dist(one, other))
        sizes.append(math.hypot(*other))
    size = math.hypot(*sizes)
    return math.hypot(*gaps) / size if size else math.hypot(*gaps)


def numbers(datatype: str, data: bytes) -> Sequence[float]:
    if datatype == "FP16":
        return struct.unpack(f"<{len(data) // 2}e", data)
    if datatype == "BF16":  # the upper half of an FP32
        return array.array("f", array.array("I", (half << 16 for half in array.array("H", data))).tobytes())
    return array.array(TYPECODES[datatype], data)


def check(recorded: Mapping[str, Any], model: str, port: int, seconds: float) -> list[str]:
    """A line for each output, with its figures. Raises :class:`SmokeTestError`."""
    deadline = time.monotonic() + seconds
    worst = {output["name"]: 0.0 for output in recorded["outputs"]}
    for batch in recorded["batches"]:
        asked = ask_steps if "steps" in recorded else ask
        answers = asked(recorded, model, batch, port, deadline, seconds)
        for output in recorded["outputs"]:
            name = output["name"]
            off = judge(output, answers, batch, recorded["samples"])
            worst[name] = max(worst[name], off)
    return [f"output {output['name']} is off by {worst[output['name']]:.3g} ({output['limit']:.3g} is allowed)"
            for output in recorded["outputs"]]


def check_tokens(recorded: Mapping[str, Any], model: str, port: int, seconds: float) -> list[str]:
    """The same of a language model. Raises :class:`SmokeTestError`."""
    deadline = time.monotonic() + seconds
    kept = sum(leading(next_tokens(one, model, port, deadline, seconds), one["tokens"]) for one in recorded["prompts"])
    of = sum(len(one["tokens"]) for one in recorded["prompts"])
    found = f"{kept} of {of} tokens are the unquantised model's"
    if kept < recorded["limit"]:
        raise SmokeTestError(f"{found}; {recorded['measured']} were when this configuration was proven, and "
                             f"{recorded['limit']} are asked for")
    return [f"{found} ({recorded['limit']} are asked for)"]


def leading(tokens: Sequence[int], reference: Sequence[int]) -> int:
    """How many from the first on are the same."""
    same = [one == other for one, other in zip(tokens, reference, strict=False)]
    return [*same, False].index(False)


def judge(output: Mapping[str, Any], answers: Mapping[str, tuple[str, bytes]], batch: int, samples: int) -> float:
    """How far ``output`` is off. Raises :class:`SmokeTestError`."""
    name, asked = output["name"], f"at batch {batch}"
    if name not in answers:
        raise SmokeTestError(f"output {name} is missing {asked}")
    datatype, answer = answers[name]
    if datatype != output["datatype"]:
        raise SmokeTestError(f"output {name} is {datatype}, the proven engine's {output['datatype']}")
    reference = repeated(decoded(output["data"]), samples, batch, texts=datatype == TEXTS)
    if datatype != TEXTS and len(answer) != len(reference):
        raise SmokeTestError(f"output {name} has {len(answer)} bytes {asked}, the source model's {len(reference)}")
    off = distance(datatype, answer, reference)
    if not math.isfinite(off):
        raise SmokeTestError(f"output {name} has NaN or infinity {asked}")
    if off > output["limit"]:
        what = "of its size" if datatype in FLOATING else "of its entries"
        raise SmokeTestError(
            f"output {name} is off the source model's by {off:.3g} {what} {asked}; {output['measured']:.3g} was "
            f"measured when the engine was proven, {output['limit']:.3g} is allowed")
    return off


def ask_steps(recorded: Mapping[str, Any], model: str, batch: int, port: int, deadline: float,
              seconds: float) -> dict[str, tuple[str, bytes]]:
    """The same of a sequence, which it begins and ends: a request for each step, and the answers behind each other."""
    steps, found = recorded["steps"], dict[str, tuple[str, bytes]]()
    for step in range(steps):
        flags = {"sequence_id": SEQUENCE, "sequence_start": step == 0, "sequence_end": step == steps - 1}
        asked = {**recorded, "inputs": [step_of(tensor, step, steps) for tensor in recorded["inputs"]]}
        for name, (datatype, answer) in ask(asked, model, batch, port, deadline, seconds, flags).items():
            found[name] = (datatype, found.get(name, ("", b""))[1] + answer)
    return found


def step_of(tensor: Mapping[str, Any], step: int, steps: int) -> dict[str, Any]:
    """What one request of a sequence has of ``tensor``."""
    import base64

    data = decoded(tensor["data"])
    size = len(data) // steps
    own = text_rows(data, steps)[step] if tensor["datatype"] == TEXTS else data[step * size:(step + 1) * size]
    return {**tensor, "shape": tensor["shape"][1:], "data": base64.b64encode(own).decode()}


def ask(recorded: Mapping[str, Any], model: str, batch: int, port: int, deadline: float,
        seconds: float, parameters: Mapping[str, Any] | None = None) -> dict[str, tuple[str, bytes]]:
    """Type and raw bytes of each output, by Triton's binary tensor extension of the inference protocol."""
    import json  # here and not above: the probe runs every second while a server loads, and needs it only then

    inputs, parts = [], []
    front = [] if recorded.get("whole") else [batch]  # a model without a batch takes a sample as it is
    for tensor in recorded["inputs"]:
        texts = tensor["datatype"] == TEXTS
        data = repeated(decoded(tensor["data"]), recorded["samples"], batch, texts=texts)
        inputs.append({"name": tensor["name"], "datatype": tensor["datatype"], "shape": [*front, *tensor["shape"]],
                       "parameters": {"binary_data_size": len(data)}})
        parts.append(data)
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True, **(parameters or {})}}).encode()
    headers, body = post(port, f"/v2/models/{model}/infer", b"".join([head, *parts]),
                         {"Inference-Header-Content-Length": str(len(head)),
                          "Content-Type": "application/octet-stream"}, f"a batch of {batch}", deadline, seconds)
    try:
        return unpacked(body, int(headers["Inference-Header-Content-Length"]))
    except (KeyError, TypeError, ValueError) as error:
        raise SmokeTestError(f"the answer to a batch of {batch} cannot be read: {error!r}") from None


def next_tokens(asked: Mapping[str, Any], model: str, port: int, deadline: float, seconds: float) -> list[int]:
    """The most likely continuation of a prompt of tokens, by OpenAI's API as vLLM has it."""
    import json

    body = {"model": model, "prompt": asked["prompt"], "max_tokens": len(asked["tokens"]), "temperature": 0.0,
            "ignore_eos": True, "logprobs": 1, "return_tokens_as_token_ids": True}
    what = f"a prompt of {len(asked['prompt'])} tokens"
    _, answer = post(port, "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}, what,
                     deadline, seconds)
    try:
        return [int(name.rpartition(":")[2]) for name in json.loads(answer)["choices"][0]["logprobs"]["tokens"]]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise SmokeTestError(f"the answer to {what} cannot be read: {error!r}") from None


def post(port: int, path: str, body: bytes, headers: Mapping[str, str], what: str, deadline: float,
         seconds: float) -> tuple[Message, bytes]:
    """Headers and body of the answer. Raises :class:`SmokeTestError` for any status but 200, and for none."""
    from http import client

    connection = client.HTTPConnection(HOST, port, timeout=max(0.1, deadline - time.monotonic()))
    try:
        connection.request("POST", path, body, dict(headers))
        response = connection.getresponse()
        answer = response.read()
    except TimeoutError:
        raise SmokeTestError(f"no answer to {what} within {seconds:.0f} s") from None
    except (OSError, client.HTTPException) as error:
        raise SmokeTestError(f"no answer to {what}: {error!r}") from None
    finally:
        connection.close()
    if response.status != 200:
        raise SmokeTestError(f"{what} got status {response.status}: {answer[:500].decode(errors='replace')}")
    return response.headers, answer


def unpacked(body: bytes, length: int) -> dict[str, tuple[str, bytes]]:
    """``length`` bytes of JSON say which outputs follow, and how long each is."""
    import json

    found, position = {}, length
    for output in json.loads(body[:length])["outputs"]:
        size = int(output["parameters"]["binary_data_size"])
        found[output["name"]] = (output["datatype"], body[position:position + size])
        position += size
    return found


def repeated(data: bytes, samples: int, batch: int, *, texts: bool = False) -> bytes:
    """``batch`` samples, taken round and round of those recorded. ``texts`` have each a length of their own."""
    if texts:
        rows = text_rows(data, samples)
        return b"".join(rows[place % samples] for place in range(batch))
    size = len(data) // samples
    whole, rest = divmod(batch, samples)
    return data * whole + data[:rest * size]


def text_rows(data: bytes, samples: int) -> list[bytes]:
    """Of each sample the :func:`entries`, one behind the other."""
    every = entries(data)
    each = len(every) // samples
    return [b"".join(every[row * each:(row + 1) * each]) for row in range(samples)]


def entries(data: bytes) -> list[bytes]:
    """Texts as Triton writes them: four bytes that say how long each is, and the text."""
    found, position = [], 0
    while position < len(data):
        end = position + 4 + int.from_bytes(data[position:position + 4], "little")
        found.append(data[position:end])
        position = end
    return found


def decoded(text: str) -> bytes:
    import base64

    return base64.b64decode(text)


def await_ready(port: int, path: str) -> None:
    """Raises :class:`NotReadyError`. A server that loads has not opened its ports: found out without more imports."""
    try:
        with socket.create_connection((HOST, port), READY_SECONDS) as probe:
            probe.sendall(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
            status = probe.recv(64).split()
    except OSError as error:
        raise NotReadyError(f"no server at port {port} yet: {error}") from None
    if len(status) < 2 or status[1] != b"200":
        raise NotReadyError(f"the server is not ready: {b' '.join(status).decode(errors='replace')}")


def end(message: str, pid: int) -> None:
    """Says why, then ends the server: kubelet would try again for as long as a server may take to load."""
    with contextlib.suppress(OSError), open(os.environ.get("TERMINATION_LOG", TERMINATION_LOG), "w") as log:
        log.write(message[:4096])
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGTERM)


def main(arguments: Sequence[str] | None = None) -> int:
    # By hand: argparse alone doubles what the probe costs every second while a server loads.
    given = dict(argument.removeprefix("--").split("=", 1) for argument in (arguments or sys.argv[1:]))
    port, seconds = int(given.get("port", "8000")), float(given.get("seconds", "60"))
    path = given.get("data") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "smoke.json")
    try:
        await_ready(port, given.get("ready", "/v2/health/ready"))
        if not os.path.exists(path):
            print("ready; this engine has no recorded answers")
            return 0
        import json

        with open(path, encoding="utf-8") as reader:
            recorded = json.load(reader)
        held = check_tokens if "prompts" in recorded else check
        print("ready; " + "; ".join(held(recorded, given["model"], port, seconds)))
    except NotReadyError as error:
        print(error)
        return 1
    except SmokeTestError as error:
        print(f"{FAILED}{error}")
        end(f"{FAILED}{error}", int(given.get("server-pid", "1")))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
