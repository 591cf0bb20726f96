"""A short sequence of ``make survive-study``: random actions, faults and kill -9, and what must hold."""

from __future__ import annotations

from pathlib import Path

from enginewright.clients.kube import KubeClient
from survive_study.lane import lane
from survive_study.operators import zygote
from survive_study.steps import sequence

SEED, STEPS, REST_EVERY = 2, 24, 8
# Seconds in which everything comes to rest, on a machine that has much else to do.
PATIENCE = 250.0


async def test_a_short_sequence_raises_no_alarm(
    kube: KubeClient, operator_kubeconfig: Path, tmp_path: Path
) -> None:
    async with (zygote() as source,
                lane(kube, source, operator_kubeconfig, tmp_path, f"survive-{SEED}", SEED, bound=PATIENCE) as one):
        told = await one.run(sequence(SEED, STEPS), rest_every=REST_EVERY)
    assert told.alarms == []
    assert (told.steps, told.rests) == (STEPS, STEPS // REST_EVERY)
    assert told.kills > 3
    assert told.fields or told.done
