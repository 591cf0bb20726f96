"""Arguments that an installation adds to every tritonserver: those that would take away what the operator relies on.

Triton reads its options with getopt_long, which takes ``--name=value``, ``--name value`` and any beginning of a name
that fits one option alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from enginewright.core import labels

# By option, the port that it must leave alone, and who asks there.
PORTS: Final = {
    "http-port": (labels.HTTP_PORT, "the Service, the probes and the start-up test"),
    "grpc-port": (labels.GRPC_PORT, "the Service"),
    "metrics-port": (labels.METRICS_PORT, "the operator"),
}
ALLOW: Final = {f"allow-{name.removesuffix('-port')}": who for name, (_, who) in PORTS.items()}
FALSE: Final = ("false", "off", "0")
# Where model control opens to a key alone: what switches it, loads something else, or opens another way to it. Of the
# APIs with a key, those that the batcher asks: Triton ends where one of them has two.
CONTROL: Final = ("model-control-mode", "load-model")
OTHER_PROTOCOLS: Final = ("allow-sagemaker", "allow-vertex-ai")
RESTRICTIONS: Final = {"http-restricted-api": ("model-repository", "model-config"),
                       "grpc-restricted-protocol": ("model-repository",)}
TAKEN: Final = {
    **{port: f"its --{name}" for name, (port, _) in PORTS.items()},
    labels.QUALITY_PORT: "the quality monitor", labels.BATCHING_PORT: "what adapts batching",
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


def against_model_control(arguments: Sequence[str]) -> Iterator[BadArgument]:
    """Those that break the model control that adaptive batching needs, or open it to others than the batcher."""
    for index, given, value in _options(arguments):
        wrong = _controls(_meant(given, (*CONTROL, *OTHER_PROTOCOLS, *RESTRICTIONS)), value)
        if wrong:
            yield BadArgument(index=index, text=f"--{given}={value}", message=wrong, remedy="remove it")


def _options(arguments: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """Index, option as given, and its value."""
    for index, argument in enumerate(arguments):
        if not argument.startswith("--"):
            continue
        given, equals, value = argument.removeprefix("--").partition("=")
        if not equals:
            value = next((after for after in arguments[index + 1:index + 2] if not after.startswith("--")), "")
        yield index, given, value


def _controls(option: str, value: str) -> str:
    """What is wrong with it; empty where nothing is."""
    if option in CONTROL:
        return "decides over the model control that changes batching"
    if option in OTHER_PROTOCOLS and value.lower() not in FALSE:
        return "opens model control without the pod's key"
    if option in RESTRICTIONS and set(value.partition(":")[0].split(",")) & set(RESTRICTIONS[option]):
        return "gives model control a key other than the pod's"
    return ""


def _wrong(option: str, value: str) -> tuple[str, str] | None:
    """Message and remedy."""
    if option in PORTS:
        port, who = PORTS[option]
        if value != str(port):
            return f"is {port} on each replica, for {who}", "remove it; a Service of your own may have another"
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
