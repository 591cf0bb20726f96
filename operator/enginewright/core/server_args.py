"""Arguments that an installation adds to every tritonserver: those that would take away what the operator relies on.

Triton reads its options with getopt_long, which takes ``--name=value``, ``--name value`` and any beginning of a name
that fits one option alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from enginewright.core import labels
from enginewright.core.servers.triton import TRITON

# By option, the port that it must leave alone.
PORTS: Final = {port.option: port for port in TRITON.ports}
ALLOW: Final = {f"allow-{port.name}": port.used_by for port in TRITON.ports}
FALSE: Final = ("false", "off", "0")
TAKEN: Final = {
    **{port.number: f"its --{port.option}" for port in TRITON.ports},
    labels.QUALITY_PORT: "the quality monitor",
}


@dataclass(frozen=True, kw_only=True)
class BadArgument:
    """``index`` in the list, the option with its value, why it is refused, and what to do instead."""

    index: int
    text: str
    message: str
    remedy: str


def bad_arguments(arguments: Sequence[str]) -> Iterator[BadArgument]:
    """Those that move or switch off what the operator or a client asks for, or that take a port of another one in the
    pod."""
    for index, given, value in _options(arguments):
        wrong = _wrong(_meant(given, (*PORTS, *ALLOW)), value)
        if wrong:
            yield BadArgument(index=index, text=f"--{given}={value}", message=wrong[0], remedy=wrong[1])


def _options(arguments: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """Index, option as given, and its value."""
    for index, argument in enumerate(arguments):
        if not argument.startswith("--"):
            continue
        given, equals, value = argument.removeprefix("--").partition("=")
        if not equals:
            value = next((after for after in arguments[index + 1:index + 2] if not after.startswith("--")), "")
        yield index, given, value


def _wrong(option: str, value: str) -> tuple[str, str] | None:
    """Message and remedy."""
    if option in PORTS:
        port = PORTS[option]
        if value != str(port.number):
            return f"is {port.number} on each replica, for {port.used_by}", (
                "remove it; a Service of your own may have another")
    elif option in ALLOW:
        if value.lower() in FALSE:
            return f"is used by {ALLOW[option]}", "remove it"
    elif option.endswith("-port") and value.isdecimal() and int(value) in TAKEN:
        return f"is the port of {TAKEN[int(value)]} on each replica", "choose another, such as 8080"
    return None


def _meant(given: str, ours: Sequence[str]) -> str:
    """The one of ``ours`` that ``given`` is the beginning of, else ``given``."""
    found = [name for name in ours if name.startswith(given)]
    return found[0] if len(found) == 1 else given
