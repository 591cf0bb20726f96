"""Now and then: is the cluster's CRD as new as this operator?"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from enginewright.clients.errors import ClientError, NotFoundError
from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import OPTIMISED_MODEL
from enginewright.core.spec.served import missing_fields

PERIOD: Final = 300.0
SHOWN: Final = 5
OLD: Final = ("the CustomResourceDefinition is older than this operator, and the apiserver drops what it lacks: "
              "kubectl apply --server-side --force-conflicts -f crds/enginewright.io_optimisedmodels.yaml")
log = structlog.get_logger(__name__)


class ServedSchema:
    """``missing`` are the fields that the CRD lacks, as of the last look; ``period`` is seconds between looks."""

    def __init__(self, kube: KubeClient, period: float = PERIOD) -> None:
        self._kube = kube
        self._period = period
        self.missing: tuple[str, ...] = ()

    async def run(self) -> None:
        """Forever. What serves goes on serving with an old CRD, so this only tells."""
        while True:
            await self.look()
            await asyncio.sleep(self._period)

    async def look(self) -> None:
        try:
            found = missing_fields(await self._kube.published(OPTIMISED_MODEL))
        except NotFoundError:
            log.debug("no schema is published yet; it follows the CRD by a moment")
            return
        except (ClientError, ValueError) as error:
            log.warning("cannot read the CRD's schema", error=str(error))
            return
        if found and found != self.missing:
            log.error(OLD, missing=len(found), fields=found[:SHOWN])
        elif self.missing and not found:
            log.info("the CustomResourceDefinition is up to date again")
        self.missing = found
