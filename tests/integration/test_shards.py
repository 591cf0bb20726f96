"""Two operators share a cluster by its namespaces: docs/install.md, "With more models than one operator can watch"."""

from __future__ import annotations

from pathlib import Path

from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import DEPLOYMENT
from enginewright.observe.keys import Key
from support.apiserver import NAMESPACE, Models, manifest, model
from support.fake_kubelet import FakeKubelet
from support.operators import embedded, nothing_is_written


async def test_each_of_two_operators_works_in_its_own_namespaces(
    operator_kubeconfig: Path, kube: KubeClient, namespace: str, models: Models, kubelet: FakeKubelet, tmp_path: Path
) -> None:
    body = manifest("v1", "Namespace", f"{namespace}-other")
    await kube._json("create", NAMESPACE, NAMESPACE.path(None), body=body)
    other = Models(kube, f"{namespace}-other")
    await other.claims()
    keys = tmp_path / "other"
    keys.mkdir()
    async with (
        FakeKubelet(kube, other.namespace, keys).running(),
        embedded(operator_kubeconfig, namespace, resync=0.5) as first,
        embedded(operator_kubeconfig, other.namespace, resync=0.5) as second,
    ):
        for each in (models, other):
            await each.create(model())
        for each, operator in ((models, first), (other, second)):
            await each.wait("Ready", "True")
            assert operator.known.keys() == {Key(each.namespace, "minilm")}
            assert len(await each.names(DEPLOYMENT)) == 1
        await nothing_is_written(first, models)
        await nothing_is_written(second, other)
