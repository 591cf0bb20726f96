"""Which models and replicas the drill has, and the addresses of their pods.

The addresses are of a network of the drill's own, in which all of them are this machine: real pods may not have 127.x.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["honest", "pages", "silent", "redirect"]
HOSTILE: Final[tuple[Kind, ...]] = ("pages", "silent", "redirect")
NETWORK: Final = "10.98.0.0/15"
# Where hostile replicas send clients that follow redirects.
TRAP: Final = "10.98.255.1"
# Replicas of a hostile model; an honest one has between 1 and MOST.
EACH: Final = 5
MOST: Final = 5


@dataclass(frozen=True)
class Model:
    kind: Kind
    number: int

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.number}"

    @property
    def replicas(self) -> int:
        return 1 if self.kind == "honest" else EACH

    def address(self, place: int) -> str:
        """Of the replica that is started as number ``place``."""
        if self.kind == "honest":
            return f"10.99.{self.number}.{place + 1}"
        third = {"pages": 0, "silent": 100, "redirect": 200}[self.kind] + self.number
        return f"10.98.{third}.{place + 1}"


@dataclass(frozen=True)
class Cast:
    """``pages``, ``silent`` and ``redirect`` are replicas, :data:`EACH` of a model."""

    honest: int = 50
    pages: int = 100
    silent: int = 20
    redirect: int = 5

    @property
    def models(self) -> list[Model]:
        counts = zip(HOSTILE, (self.pages, self.silent, self.redirect), strict=True)
        hostile = [Model(kind, number) for kind, replicas in counts for number in range(replicas // EACH)]
        return [Model("honest", number) for number in range(self.honest)] + hostile

    def addresses(self, kind: Kind) -> list[str]:
        each = MOST if kind == "honest" else EACH
        return [model.address(place) for model in self.models if model.kind == kind for place in range(each)]
