"""Which objects exist, as far as passes have seen, and who waits for what that carries no label of theirs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from enginewright.observe.keys import Key


@dataclass(frozen=True)
class Needs:
    """What wakes an object up besides its own children: claims that its spec names, the engine that it wants, and the
    ``job`` of another object that asks for it what a server image has."""

    claims: frozenset[str] = frozenset()
    fingerprint: str = ""
    job: str = ""


class Known:
    """Hints, not truth: a pass decides from what it reads."""

    def __init__(self) -> None:
        self._needs: dict[Key, Needs] = {}
        self._by_claim: dict[tuple[str, str], set[Key]] = defaultdict(set)
        self._by_fingerprint: dict[tuple[str, str], set[Key]] = defaultdict(set)
        self._by_job: dict[tuple[str, str], set[Key]] = defaultdict(set)

    def __len__(self) -> int:
        return len(self._needs)

    def __contains__(self, key: Key) -> bool:
        return key in self._needs

    def keys(self) -> frozenset[Key]:
        return frozenset(self._needs)

    def remember(self, key: Key, needs: Needs) -> None:
        if self._needs.get(key) == needs:
            return
        self.forget(key)
        self._needs[key] = needs
        for claim in needs.claims:
            self._by_claim[key.namespace, claim].add(key)
        if needs.fingerprint:
            self._by_fingerprint[key.namespace, needs.fingerprint].add(key)
        if needs.job:
            self._by_job[key.namespace, needs.job].add(key)

    def forget(self, key: Key) -> None:
        needs = self._needs.pop(key, None)
        if needs is None:
            return
        for claim in needs.claims:
            _remove(self._by_claim, (key.namespace, claim), key)
        if needs.fingerprint:
            _remove(self._by_fingerprint, (key.namespace, needs.fingerprint), key)
        if needs.job:
            _remove(self._by_job, (key.namespace, needs.job), key)

    def of_claim(self, namespace: str, claim: str) -> Iterable[Key]:
        return tuple(self._by_claim.get((namespace, claim), ()))

    def of_fingerprint(self, namespace: str, fingerprint: str) -> Iterable[Key]:
        return tuple(self._by_fingerprint.get((namespace, fingerprint), ()))

    def of_job(self, namespace: str, job: str) -> Iterable[Key]:
        return tuple(self._by_job.get((namespace, job), ()))


def _remove(index: dict[tuple[str, str], set[Key]], entry: tuple[str, str], key: Key) -> None:
    index[entry].discard(key)
    if not index[entry]:
        del index[entry]
