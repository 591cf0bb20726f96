"""Engine records of one store: those that a pass may need, each by its name. How many others the namespace has, and
what they hold, costs the pass nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import structlog

from enginewright.clients.errors import TooLargeError
from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import CONFIG_MAP
from enginewright.core import labels
from enginewright.core.manifests import read_record, record_name
from enginewright.core.observed import EngineRecord, Version
from enginewright.observe.fields import Raw, name_of, section
from enginewright.observe.memory import Memory
from enginewright.observe.parsed import Parsed
from enginewright.observe.reads import Trail
from enginewright.observe.together import together

# Of the answer with one record: an outcome of the largest size that is read (record.OUTCOME_BYTES), written twice where
# `kubectl apply` keeps a copy, and its quotes escaped.
ANSWER_BYTES: Final = 512 << 10
FINGERPRINT: Final = re.compile(r"[0-9a-f]{64}")
SELECTOR: Final = f"{labels.ENGINE}=true"
log = structlog.get_logger(__name__)


class RecordReader:
    """One for the process. ``skipped`` counts records that are not read, by why: ``large`` or ``unreadable``."""

    def __init__(self, kube: KubeClient, skipped: Callable[[str], None], memory: Memory | None = None) -> None:
        self._kube = kube
        self._memory = memory
        self._skipped = skipped
        self._parsed = Parsed(read_record, self._unreadable)

    async def records(
        self, namespace: str, store_uri: str, fingerprints: Iterable[str], trail: Trail | None = None,
    ) -> Mapping[str, EngineRecord]:
        """By fingerprint. With a ``trail``, which notes it, a record whose version is remembered is not read again.
        Raises :class:`~enginewright.clients.errors.ClientError`."""
        # Statuses and annotations name fingerprints, and any text may stand there: this becomes a field selector.
        wanted = sorted(filter(FINGERPRINT.fullmatch, set(fingerprints)))
        found = await together(*(self._record(namespace, store_uri, one, trail) for one in wanted))
        return {record.fingerprint: record for record in found if record is not None}

    async def _record(self, namespace: str, store_uri: str, fingerprint: str,
                      trail: Trail | None) -> EngineRecord | None:
        name = record_name(fingerprint, store_uri)
        known = None if trail is None else self._recall(namespace, name, trail)
        record = (await self._read(namespace, name)) if known is None else known[0]
        # Another store's engine cannot be mounted from this one's claim.
        return record if record and (record.fingerprint, record.store_uri) == (fingerprint, store_uri) else None

    def _recall(self, namespace: str, name: str, trail: Trail) -> tuple[EngineRecord | None] | None:
        """None where the apiserver has to be asked."""
        version = self._memory.version(CONFIG_MAP, namespace, name) if self._memory is not None else None
        if version is None:
            return None
        if not any(version):
            return (None,)
        known = self._parsed.recall(*version)
        if known is not None and known[0] is not None:
            trail.seen[CONFIG_MAP, namespace, name] = Version(*version)
        return known

    async def _read(self, namespace: str, name: str) -> EngineRecord | None:
        began = self._memory.now() if self._memory is not None else 0.0
        try:
            raw = await self._kube.find(CONFIG_MAP, namespace, name, labels=SELECTOR, most=ANSWER_BYTES)
        except TooLargeError as error:
            self._skip("large", f"{namespace}/{name}", str(error))
            return None
        if self._memory is not None:
            if raw is None:
                self._memory.gone(CONFIG_MAP, namespace, name, began)
            else:
                self._memory.confirm(CONFIG_MAP, raw, began)
        return None if raw is None else self._parsed.of(raw)

    def _unreadable(self, raw: Raw) -> None:
        where = f"{section(raw, 'metadata').get('namespace')}/{name_of(raw)}"
        self._skip("unreadable", where, "this release cannot read its outcome, or it is too large")

    def _skip(self, why: str, where: str, message: str) -> None:
        self._skipped(why)
        log.warning("the operator cannot read a ConfigMap labelled as an engine record; delete it if no build made it",
                    config_map=where, why=message)
