"""Traffic through a Gateway of the Gateway API: which Gateways, and for which host names."""

from __future__ import annotations

from itertools import product
from typing import Annotated

from pydantic import Field

from enginewright.core.spec.base import MAX_NAME, SUBDOMAIN, ObjectName, Remedy, SpecModel

Namespace = Annotated[
    str,
    Field(max_length=63, pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"),
    Remedy("write the name of a namespace, or leave it out for the object's own"),
]
SectionName = Annotated[
    str,
    Field(max_length=MAX_NAME, pattern=rf"^({SUBDOMAIN})?$"),
    Remedy("write the name of one of the Gateway's listeners, or leave it out for all of them"),
]
# As the Gateway API takes them.
Hostname = Annotated[
    str,
    Field(min_length=1, max_length=MAX_NAME, pattern=rf"^(\*\.)?{SUBDOMAIN}$"),
    Remedy("write a host name such as models.example.com or *.example.com: no port, no path, no capitals"),
]


class ParentRefSpec(SpecModel):
    """A Gateway that the routes attach to."""

    name: ObjectName
    """Name of the Gateway."""
    namespace: Namespace = ""
    """Namespace of the Gateway, which must allow routes of this one; absent: the object's own."""
    section_name: SectionName = ""
    """Only this listener of the Gateway; absent: all that allow the route."""


class GatewaySpec(SpecModel):
    """Traffic that comes in through a Gateway is split by the weights of an HTTPRoute and a GRPCRoute."""

    parent_refs: tuple[ParentRefSpec, ...] = Field(min_length=1, max_length=8)
    """Gateways that the routes attach to."""
    hostnames: tuple[Hostname, ...] = Field(min_length=1, max_length=16)
    """Host names of the HTTPRoute, which takes what begins with /v2, of a language model with /v1; a wildcard such as
    *.example.com is allowed."""
    grpc_hostnames: tuple[Hostname, ...] = Field(default=(), max_length=16)
    """Host names of the GRPCRoute; none: no GRPCRoute is made. They must not overlap with hostnames: at one listener a
    Gateway accepts either an HTTPRoute or a GRPCRoute for a host name, never both."""

    def overlap(self) -> tuple[str, str] | None:
        """A host name of the HTTPRoute and one of the GRPCRoute that some request would match both of."""
        return next(((http, grpc) for http, grpc in product(self.hostnames, self.grpc_hostnames)
                     if intersect(http, grpc)), None)


def intersect(one: str, other: str) -> bool:
    """Whether some host matches both. A wildcard stands for one label or more, as the Gateway API says."""
    return one == other or _covers(one, other) or _covers(other, one)


def _covers(wildcard: str, other: str) -> bool:
    return wildcard.startswith("*.") and other.endswith(wildcard[1:])
