"""What the operator knows of the servers that replicas run: data, not calls (docs/adr/0039-language-models.md). Each
server has a module with its record. A third server is one more such file."""

from __future__ import annotations

from dataclasses import dataclass

from enginewright.core import labels


@dataclass(frozen=True, kw_only=True)
class Port:
    """A port of a replica. ``name`` is that of container ports and Services, ``option`` the server's that sets it.
    ``protocol`` is a Service's ``appProtocol``; ``used_by`` says in words who asks there."""

    name: str
    number: int
    option: str
    protocol: str
    used_by: str


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Names on the server's Prometheus page. ``model_label`` is the label with a model's name; ``pending`` is a gauge
    of the requests that wait, ``successes`` a counter of the answered ones. ``busy`` and ``queued_for`` are counters of
    the time that these took, and waited of it, in units of ``microseconds``."""

    model_label: str
    pending: str
    successes: str
    busy: str
    queued_for: str
    microseconds: float


@dataclass(frozen=True, kw_only=True)
class Server:
    """``program`` starts its command line. ``exit_option`` takes the seconds for which a server that stops goes on with
    requests that it is answering. A GET of ``live_path`` or ``ready_path`` at the HTTP port gives 200 where it is.
    Paths of its API begin with ``api_prefix``."""

    program: tuple[str, ...]
    ports: tuple[Port, ...]
    exit_option: str
    live_path: str
    ready_path: str
    api_prefix: str
    metrics: Metrics

    @property
    def client_ports(self) -> tuple[Port, ...]:
        """Without that of the metrics, which are read from each pod."""
        return tuple(port for port in self.ports if port.name != labels.PORT_METRICS)

    @property
    def metrics_port(self) -> int:
        """Where its Prometheus page is: that of HTTP where it has no port of its own."""
        found = {port.name: port.number for port in self.ports}
        return found.get(labels.PORT_METRICS, found[labels.PORT_HTTP])

    @property
    def port_words(self) -> list[str]:
        """Of its command line."""
        return [f"--{port.option}={port.number}" for port in self.ports]

    def exit_word(self, seconds: int) -> str:
        return f"--{self.exit_option}={seconds}"
