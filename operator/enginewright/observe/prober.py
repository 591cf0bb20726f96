"""Requests of our own during an analysis: few, to see whether both revisions answer alike; more while live traffic is
too thin to compare them by.

Both get the same input, one after the other, in turns first, and no cache stands before either. Their durations are not
taken here: the servers count the probes like any request, and the scrapes that follow bring them into the same test as
live traffic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from enginewright.clients.errors import ClientError
from enginewright.clients.probe import ProbeClient
from enginewright.core.comparison import Question, fruitless
from enginewright.core.probe import Match, ProbeError, Request, Tensor, make_prompt, make_request, match
from enginewright.observe.window import Window

# Similarities for the comparison of outputs, one pair a second, however much live traffic there is; they end with so
# many pairs, whatever they brought.
COMPARED: Final = 8
MOST_COMPARED: Final = 300
# Pairs a second while live traffic is thin, within this many seconds of each.
PAIRS: Final = 5
BUDGET: Final = 0.7
# In one analysis: what is unknown by then is not for lack of samples.
MOST_PAIRS: Final = 3000
# Address, and the name that the model has there.
Ends = tuple[tuple[str, str], tuple[str, str]]
Answered = dict[str, Tensor] | None


class Prober:
    """``clock`` is the monotonic one of the window."""

    def __init__(self, client: ProbeClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock

    async def round(self, question: Question, replicas: Mapping[str, str], revisions: Mapping[str, str],
                    window: Window) -> None:
        """At most :data:`PAIRS` pairs. ``replicas`` maps pods to addresses, ``revisions`` to their revisions."""
        if question.switched is not None:
            return
        pairs = self._wanted(question, window)
        stable, candidate = (
            sorted(pod for pod in replicas if revisions.get(pod) == name)
            for name in (question.stable, question.candidate)
        )
        names = question.name_at(question.stable), question.name_at(question.candidate)
        if question.alone:
            stable, names = candidate, (names[1], names[1])
        if not (pairs and stable and candidate):
            return
        ends = (replicas[stable[0]], names[0]), (replicas[candidate[0]], names[1])
        began = self._clock()
        try:
            metadata = {} if question.generates else await self._client.metadata(*ends[0])
            for _ in range(pairs):
                await self._pair(question, ends, metadata, window)
                if self._clock() - began > BUDGET:
                    return
        except (ClientError, ProbeError) as error:
            window.cannot_probe(f"the stable revision does not answer probes: {error}")

    def _wanted(self, question: Question, window: Window) -> int:
        done, similar = window.probes.pairs, len(window.probes.similarities)
        if window.tries >= MOST_PAIRS:
            return 0
        if window.thin((question.stable, question.candidate), self._clock()):
            return PAIRS
        return 1 if similar < COMPARED and done < MOST_COMPARED and not fruitless(window.probes) else 0

    async def _pair(self, question: Question, ends: Ends, metadata: Mapping[str, Any], window: Window) -> None:
        """Raises what the stable revision's failure raises: it says nothing of the candidate. Another input is next
        then: it may be this one that the model refuses."""
        seed = window.tries
        request = make_prompt(seed) if question.generates else await self._client.apart(make_request, metadata, seed)
        if seed % 2:
            theirs = await self._try(*ends[1], request)
            mine = await self._ask(*ends[0], request)
        else:
            mine = await self._ask(*ends[0], request)
            theirs = await self._try(*ends[1], request)
        same_model = question.limits.similarity is not None
        window.probed(self._clock(), await self._client.apart(_compared, mine, theirs, same_model))

    async def _ask(self, address: str, model: str, request: Request | str) -> Answered:
        """None also for the text of a language model, which is not compared."""
        if isinstance(request, Request):
            return await self._client.infer(address, model, request)
        await self._client.complete(address, model, request)
        return None

    async def _try(self, address: str, model: str, request: Request | str) -> Answered | str:
        """The answer, or what went wrong."""
        try:
            return await self._ask(address, model, request)
        except (ClientError, ProbeError) as error:
            return str(error)


def _compared(mine: Answered, theirs: Answered | str, same_model: bool) -> Match:
    if isinstance(theirs, str):
        return Match(flaw=theirs)
    return Match() if mine is None or theirs is None else match(mine, theirs, same_model)
