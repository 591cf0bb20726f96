"""The corpus of bad specs and of odd ones that are right, before a real apiserver. Nothing is stored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from enginewright.clients.errors import ClientError
from enginewright.clients.kube import KubeClient, Object
from enginewright.clients.resources import OPTIMISED_MODEL, resource_of_manifest
from enginewright.core.config import Images, OperatorConfig
from enginewright.core.spec import Spec, parse_spec, validate
from support.apiserver import manifest
from support.children import children_of
from support.corpus import ODD, Case, Raw, bad_ends, bad_fields, odd_fields

AT_ONCE = 8
STRICT = {"dryRun": "All", "fieldValidation": "Strict"}
# Without an image for language models the operator makes no children for them.
CONFIG = OperatorConfig(images=Images(server_vllm="example/vllm:1"))


class Child(NamedTuple):
    """What the operator makes of a spec."""

    name: str
    body: Object


def children(cases: Iterable[Case]) -> Iterator[Child]:
    """Jobs and Deployments, each once; of a fleet its members have them."""
    seen = set()
    for case in cases:
        if (case.spec.get("placement") or {}).get("classes"):
            continue
        for name, body in children_of("m", case.spec, CONFIG, namespace="default").all().items():
            text = json.dumps(body["spec"], sort_keys=True) if body["kind"] in ("Job", "Deployment") else ""
            if text and text not in seen:
                seen.add(text)
                yield Child(f"{case.name}: {name}", body)


async def answers(kube: KubeClient, cases: Iterable[Case]) -> list[tuple[Case, Object | str]]:
    """What the apiserver would store, or why it does not."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def ask(case: Case) -> tuple[Case, Object | str]:
        body = manifest(OPTIMISED_MODEL.api_version, OPTIMISED_MODEL.kind, "m", spec=case.spec)
        async with gate:
            try:
                path = OPTIMISED_MODEL.path("default")
                return case, await kube._json("create", OPTIMISED_MODEL, path, query=STRICT, body=body)
            except ClientError as error:
                return case, str(error)

    return await asyncio.gather(*map(ask, cases))


def names(field: str, answer: str) -> bool:
    """An entry of a map may stand in brackets."""
    parent, _, last = field.rpartition(".")
    return field in answer or f"{parent}[{last}]" in answer


def refused(raw: Raw) -> bool:
    spec = parse_spec(raw)
    return not isinstance(spec, Spec) or validate(spec) != ()


async def test_the_apiserver_refuses_each_wrong_field_by_its_name(kube: KubeClient) -> None:
    told = await answers(kube, bad_fields())
    assert [case.name for case, answer in told if not isinstance(answer, str)] == []
    assert {case.name: answer for case, answer in told if not names(case.field, str(answer))} == {}


async def test_what_a_rule_refuses_the_apiserver_refuses_or_the_operator(kube: KubeClient) -> None:
    told = await answers(kube, bad_ends())
    assert [case.name for case, answer in told if case.apiserver != isinstance(answer, str)] == []
    taken = [(case, answer["spec"]) for case, answer in told if not isinstance(answer, str)]
    assert taken
    assert [case.name for case, spec in taken if not refused(spec)] == []


async def test_odd_but_right_specs_are_taken_and_mean_the_same_once_stored(kube: KubeClient) -> None:
    told = await answers(kube, [*odd_fields(), *ODD])
    assert {case.name: answer for case, answer in told if isinstance(answer, str)} == {}
    changed = [case.name for case, answer in told if not isinstance(answer, str)
               and parse_spec(answer["spec"]) != parse_spec(case.spec)]
    assert changed == []


async def test_what_the_operator_makes_of_odd_specs_is_admitted(kube: KubeClient) -> None:
    """Else it is refused when the engine has been built, in words about a pod."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def ask(child: Child) -> str:
        resource = resource_of_manifest(child.body)
        async with gate:
            try:
                await kube._json("create", resource, resource.path("default"), query=STRICT, body=child.body)
            except ClientError as error:
                return f"{child.name}: {error}"
        return ""

    wanted = list(children([*odd_fields(), *ODD]))
    assert len(wanted) > 100
    assert list(filter(None, await asyncio.gather(*map(ask, wanted)))) == []
