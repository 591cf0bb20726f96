"""What the build of a language model has published, on a real apiserver: from its record to ready replicas of vLLM."""

from __future__ import annotations

from enginewright.clients.resources import CONFIG_MAP, DEPLOYMENT, JOB, SERVICE
from enginewright.core import labels
from enginewright.runtime import Operator
from support.apiserver import Models, model
from support.fake_kubelet import FakeKubelet
from support.published_language_model import TOKENS, built_language_model

BUILDS = f"{labels.STEP}=build"


async def test_it_is_served_and_another_object_finds_it_in_the_store(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    kubelet.script.language_model = built_language_model()
    await models.create(model("chat"))
    await models.wait("Ready", "True", name="chat")
    status = (await models.get("chat"))["status"]
    assert (status["summary"]["engine"], status["summary"]["precision"]) == ("vllm", "bf16")
    assert status["engine"]["tokens"]["outputRate"] == TOKENS.output_rate
    assert status["candidates"][0]["tokens"]["concurrency"] == TOKENS.concurrency

    (deployment,) = await models.kube.list_all(DEPLOYMENT, models.namespace)
    (server,) = deployment["spec"]["template"]["spec"]["containers"]
    assert server["command"][-2:] == ["vllm", "serve"]
    assert server["args"][0] == "/models/chat"
    assert server["readinessProbe"]["httpGet"]["path"] == "/health"
    service = await models.kube.get(SERVICE, models.namespace, "chat")
    assert [port["name"] for port in service["spec"]["ports"]] == ["http"]

    await models.create(model("other"))
    await models.wait("Ready", "True", name="other")
    assert (await models.get("other"))["status"]["engine"]["cacheHit"] is True
    assert kubelet.count("build") == 1
    assert len(await models.names(JOB, BUILDS)) == 1
    assert len(await models.names(CONFIG_MAP, f"{labels.ENGINE}=true")) == 1
