"""Traffic in hundredths: what routes of the Gateway API say, and what they should say given who can answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

API_VERSION = "gateway.networking.k8s.io/v1"
HTTP_ROUTE, GRPC_ROUTE = "HTTPRoute", "GRPCRoute"
Weights = Mapping[str, int]
WHOLE = 100


@dataclass(frozen=True, kw_only=True)
class GatewayView:
    """``weights`` maps the kind of each route that is there to its weights by revision, ``missing`` names kinds that
    the spec asks for and the cluster does not know, ``ready`` counts ready addresses behind each revision's Service.
    ``refused`` has a sentence for each Gateway that does not take a route."""

    weights: Mapping[str, Weights] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    ready: Mapping[str, int] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    @property
    def routed(self) -> frozenset[str]:
        """Revisions that some route sends traffic to."""
        return frozenset(revision for weights in self.weights.values() for revision, share in weights.items() if share)


def split(candidate: str, stable: str, share: int) -> Weights:
    """``share`` of a hundred to ``candidate``, the rest to ``stable``; one without a share is left out."""
    share = max(0, min(WHOLE, share))
    return {revision: part for revision, part in ((candidate, share), (stable, WHOLE - share)) if part}


def part(mine: int, theirs: int) -> int:
    """The hundredths of the replicas that are mine; rounded down."""
    return WHOLE * mine // (mine + theirs) if mine else 0


def answerable(wanted: Weights, ready: Mapping[str, int]) -> Weights:
    """``wanted``, without the revisions that have no ready address: the ones left take their share. Should none be
    left, the ready revision with the most addresses takes it all; if none is ready, the one with the greatest
    share of ``wanted`` does. Sums to 100, or is empty when ``wanted`` is and none is ready."""
    left = {revision: share for revision, share in wanted.items() if share > 0 and ready.get(revision, 0) > 0}
    if left:
        return _whole(left)
    others = {revision: count for revision, count in ready.items() if count > 0}
    first = _greatest(others) or _greatest(wanted)
    return {first: WHOLE} if first else {}


def _greatest(numbers: Mapping[str, int]) -> str:
    """By name among equals; empty when there is none."""
    return min(numbers, key=lambda name: (-numbers[name], name), default="")


def _whole(shares: Weights) -> Weights:
    """In proportion, each rounded down to one at least; what is left over goes to the greatest."""
    total = sum(shares.values())
    parts = {revision: max(1, WHOLE * share // total) for revision, share in shares.items()}
    parts[_greatest(parts)] += WHOLE - sum(parts.values())
    return parts
