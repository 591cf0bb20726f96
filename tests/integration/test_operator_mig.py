"""``mig.profile: auto`` on a real apiserver: the next larger slice where a build on one missed the objective."""

from __future__ import annotations

from enginewright.clients.resources import DEPLOYMENT, JOB
from enginewright.core import labels
from enginewright.runtime import Operator
from support.apiserver import Models, model
from support.fake_kubelet import FakeKubelet

AUTO = {"gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "mig": {"profile": "auto"}}


async def test_a_slice_on_which_the_objective_is_missed_gives_way_to_a_larger_one(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    kubelet.script.missed = frozenset({"1g.10gb"})
    await models.create(model(placement=AUTO, rollout={"analysis": {"seconds": 0}},
                              objective={"latency": {"percentile": 99, "milliseconds": 5}}))
    await models.wait("ObjectiveMet", "True", "Met")
    await models.wait("Ready", "True", "Serving")
    status = (await models.get())["status"]
    assert status["placement"]["migProfile"] == "1g.20gb"
    assert [(row["profile"], row["reason"]) for row in status["placement"]["tried"]] == [("1g.10gb", "NotMet")]
    told = await models.condition("EngineBuilt")
    assert "MIG profile 1g.10gb does not do (NotMet: 7.5 of 5 ms): 1g.20gb is taken." in told["message"]
    assert kubelet.count("build") == 2

    jobs = await models.kube.list_all(JOB, models.namespace, labels=f"{labels.STEP}=build")
    asked = {key for job in jobs for key in job["spec"]["template"]["spec"]["initContainers"][0]["resources"]["limits"]
             if key.startswith("nvidia.com/")}
    assert asked == {"nvidia.com/mig-1g.10gb", "nvidia.com/mig-1g.20gb"}
    (server,) = await models.kube.list_all(
        DEPLOYMENT, models.namespace, labels=f"{labels.COMPONENT}={labels.COMPONENT_SERVER}")
    limits = server["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits["nvidia.com/mig-1g.20gb"] == "1"
