"""What one request for tokens came to, and how it is read from a stream of events. No clock and no wire."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from enginewright_builder.foreign_json import parsed

DONE = "[DONE]"
# Errors that no server sends: the stream ended without an end; what came is no answer of this API; the answer ended
# as a whole one does, and has not as many tokens as were asked for.
CUT, MALFORMED, SHORT = "Cut", "Malformed", "Short"


@dataclass(frozen=True, slots=True)
class Arrival:
    """``tokens`` came together at ``seconds`` of a monotonic clock. A server that speculates sends several at once."""

    seconds: float
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Answer:
    """``due`` is when the request should have been sent: in an open loop a late start counts as latency. ``finish`` is
    the server's finish reason. ``error`` is empty where the answer is whole, also after some of its tokens came."""

    due: float
    end: float
    arrivals: tuple[Arrival, ...] = ()
    prompt_tokens: int = 0
    output_tokens: int = 0
    finish: str = ""
    error: str = ""
    text: str = ""
    tokens: tuple[int, ...] = ()

    @property
    def ttft_seconds(self) -> float | None:
        """Until the first token; None where none came."""
        return self.arrivals[0].seconds - self.due if self.arrivals else None

    @property
    def tpot_seconds(self) -> float | None:
        """For each token after those that came first; None where no more came."""
        later = sum(one.tokens for one in self.arrivals[1:])
        return (self.arrivals[-1].seconds - self.arrivals[0].seconds) / later if later else None

    @property
    def gaps_seconds(self) -> tuple[float, ...]:
        """Between arrivals, as a reader sees them."""
        pairs = zip(self.arrivals, self.arrivals[1:], strict=False)
        return tuple(after.seconds - before.seconds for before, after in pairs)


@dataclass(kw_only=True)
class Reader:
    """Makes an :class:`Answer` of the lines of a stream of server-sent events, by OpenAI's completions or chat.
    ``expected`` is how many tokens the server has to send; 0 where it may end when it likes."""

    due: float
    expected: int = 0
    arrivals: list[Arrival] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    usage: tuple[int, int] = (0, 0)
    finish: str = ""
    error: str = ""
    done: bool = False

    def line(self, line: str, now: float) -> None:
        """Comments, names of events and blank lines say nothing."""
        if not line.startswith("data:"):
            return
        data = line.removeprefix("data:").strip()
        if data == DONE:
            self.done = True
            return
        try:
            self._event(_mapping(parsed(data)), now)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            self.error = self.error or f"{MALFORMED}: {type(error).__name__} in {data[:80]!r}"

    def answer(self, end: float) -> Answer:
        counted = sum(one.tokens for one in self.arrivals)
        error = self.error or ("" if self.done and self.finish else CUT) or self._short(counted)
        prompt, output = self.usage
        return Answer(due=self.due, end=end, arrivals=tuple(self.arrivals), prompt_tokens=prompt,
                      output_tokens=output or counted, finish=self.finish, error=error, text="".join(self.texts),
                      tokens=tuple(self.tokens))

    def _short(self, counted: int) -> str:
        return f"{SHORT}: {counted} of {self.expected} tokens" if counted != self.expected != 0 else ""

    def _event(self, event: Mapping[str, Any], now: float) -> None:
        if "error" in event:  # in a stream that began with status 200
            self.error = self.error or server_error(event["error"])
            return
        if usage := event.get("usage"):
            self.usage = int(usage["prompt_tokens"]), int(usage.get("completion_tokens") or 0)
        for choice in event.get("choices") or ():
            text = choice["text"] if "text" in choice else _mapping(choice["delta"]).get("content") or ""
            if not isinstance(text, str):
                raise TypeError("no text")
            ids = [int(one) for one in choice.get("token_ids") or ()]
            # Half a character has no text yet; only a server that names its tokens counts it.
            if count := len(ids) or int(bool(text)):
                self.arrivals.append(Arrival(now, count))
            self.texts.append(text)
            self.tokens += ids
            self.finish = str(choice.get("finish_reason") or self.finish)


def server_error(error: Any) -> str:
    """In a line, from OpenAI's error object."""
    if isinstance(error, Mapping):
        return ": ".join(str(part) for part in (error.get("type"), error.get("message")) if part)[:300] or "error"
    return str(error)[:300]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One choice of a model: its token, and the log-probabilities of the most likely ones by token, natural
    logarithms."""

    token: int
    top: Mapping[int, float]


def steps(logprobs: Mapping[str, Any]) -> list[Step]:
    """From the ``logprobs`` of a completion that was asked for with ``return_tokens_as_token_ids``. Raises
    ``ValueError``."""
    try:
        chosen: Sequence[str] = logprobs["tokens"]
        tops: Sequence[Mapping[str, float]] = logprobs["top_logprobs"]
        return [Step(token=_id(token), top={_id(name): _finite(value) for name, value in top.items()})
                for token, top in zip(chosen, tops, strict=True)]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no log-probabilities by token: {type(error).__name__}: {error}") from error


def _finite(value: float) -> float:
    """What is no number would diverge from nothing."""
    if not math.isfinite(value):
        raise ValueError(f"got the log-probability {value}")
    return float(value)


def _id(name: str) -> int:
    mark, _, number = name.rpartition(":")
    if mark != "token_id":
        raise ValueError(f"got the token {name[:40]!r}, expected token_id:N")
    return int(number)


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError("no object")
    return value
