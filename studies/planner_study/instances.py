"""Random fleets and demands, as a cluster that has run for a while would have them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from enginewright.core import mig
from enginewright.core.planner.fleet import GPU, Demand, Instance, Option
from enginewright.core.planner.geometry import FULL, ONE, cells, full, name_of, places, shape_of, slices

PRODUCTS = ("NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-SXM4-40GB", "NVIDIA-H200", "NVIDIA-A30")
# Odds of a replica's size: small models are many. Of shapes 1g, wide 1g, 2g, 3g, 4g, 7g, and whole GPUs.
SIZES = (30, 8, 20, 14, 8, 8, 12)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """``load`` is the demand's share of the slices that are free."""

    gpus: tuple[GPU, ...]
    demands: tuple[Demand, ...]
    load: float


def problem(seed: int, *, gpus: int | None = None) -> Problem:
    """2 to 40 GPUs (or ``gpus``) of one to three products on nodes of 1, 2, 4 or 8, from empty to nearly full, and
    demand for 0.5 to 2 times what is free."""
    draw = random.Random(seed)  # noqa: S311
    total = gpus or draw.choice((2, 3, 4, 6, 8, 12, 16, 24, 32, 40))
    products = draw.sample(PRODUCTS, draw.choice((1, 1, 2, 3)))
    busy = draw.choice((0.0, 0.2, 0.5, 0.8))
    fleet: list[GPU] = []
    while len(fleet) < total:
        node, product = f"node-{len({gpu.node for gpu in fleet}):03}", draw.choice(products)
        boards = min(draw.choice((1, 2, 4, 8)), total - len(fleet))
        fleet += [_gpu(draw, node, index, product, busy) for index in range(boards)]
    load = draw.choice((0.5, 0.8, 0.95, 1.05, 1.3, 2.0))
    free = sum(_free(gpu) for gpu in fleet)
    demands = _demands(draw, sorted({gpu.product for gpu in fleet}), load * free)
    return Problem(gpus=tuple(fleet), demands=demands, load=load)


def _free(gpu: GPU) -> int:
    used = sum(cells(gpu.product, i.profile, i.start).bit_count() for i in gpu.instances)
    return 0 if gpu.used_by else slices(gpu.product) - used


def _gpu(draw: random.Random, node: str, index: int, product: str, busy: float) -> GPU:
    """With odds of ``busy`` something runs on it: on all of it, or instances lie as departures leave them."""
    if draw.random() >= busy:
        return GPU(node=node, index=index, product=product, layout="dynamic")
    if draw.random() < 0.15:
        return GPU(node=node, index=index, product=product, used_by="someone", layout="dynamic")
    size = slices(product)
    free, found = full(size), []
    for _ in range(draw.randint(1, 5)):
        shape = draw.choices(range(ONE, FULL), SIZES[:FULL])[0]
        where = places(shape, size, free)
        if where:
            start = draw.choice(where)
            profile = name_of(product, shape)
            free &= ~cells(product, profile, start)
            found.append(Instance(profile=profile, start=start, used_by="someone"))
    return GPU(node=node, index=index, product=product, mig=True, instances=tuple(found), layout="dynamic")


def _demands(draw: random.Random, products: list[str], wanted: float) -> tuple[Demand, ...]:
    weights = draw.choice(("each", "size", "random"))
    found: list[Demand] = []
    while wanted > 0 and len(found) < 60:
        home = draw.choice(products)
        shape = draw.choices(range(7), SIZES)[0]
        options, size = _options(draw, home, shape, products)
        if not options:
            continue
        replicas = draw.randint(1, max(1, min(12, int(wanted / size) + 1)))
        anything = round(draw.choice((0.5, 1.0, 2.0, 4.0)) * size**0.5, 2)
        weight = {"each": 1.0, "size": float(size), "random": anything}[weights]
        found.append(Demand(name=f"model-{len(found):02}", replicas=replicas, options=options, weight=weight))
        wanted -= replicas * size
    return tuple(found)


def arrival(draw: random.Random, number: int, products: list[str]) -> tuple[Demand, int]:
    """A model that arrives by itself, worth its size, and the slices of one replica."""
    while True:
        options, size = _options(draw, draw.choice(products), draw.choices(range(7), SIZES)[0], products)
        if options:
            replicas = draw.randint(1, 4)
            return Demand(name=f"model-{number}", replicas=replicas, options=options, weight=float(size)), size


def slices_of(gpus: Iterable[GPU]) -> int:
    return sum(slices(gpu.product) for gpu in gpus)


def _options(draw: random.Random, home: str, shape: int, products: list[str]) -> tuple[tuple[Option, ...], int]:
    """The smallest slice that will do on ``home``; often larger ones, too, or those of other products that hold as
    much."""
    if shape == 6:
        gpus = draw.choice((1, 1, 1, 2, 2, 4))
        return (Option(gpus=gpus, products=tuple(products) if draw.random() < 0.3 else (home,)),), gpus * slices(home)
    profile = name_of(home, shape)
    chosen = mig.profile(home, profile) if profile else None
    if chosen is None:
        return (), 0
    options = [Option(profile=profile, products=(home,))]
    if draw.random() < 0.4:
        larger = [p.name for p in mig.profiles(home) if p.gib >= chosen.gib and p.name != profile]
        options += [Option(profile=name, products=(home,)) for name in larger[:draw.choice((1, 2))]]
    if draw.random() < 0.4:
        for other in products:
            fit = mig.smallest_profile(other, chosen.bytes)
            if other != home and not isinstance(fit, str) and shape_of(other, fit.name) is not None:
                options.append(Option(profile=fit.name, products=(other,)))
    return tuple(options), chosen.memory
