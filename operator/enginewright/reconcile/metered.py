"""What the GPUs of each object's replicas do now, as series: of objects whose replicas are read, and whole GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from enginewright.observe.keys import Key
from enginewright.observe.power import Drawn
from enginewright.reconcile.exposed import OBJECT


class Metered(Collector):
    """``drawn`` gives what is known of each object at this moment."""

    def __init__(self, drawn: Callable[[], Mapping[Key, Drawn]]) -> None:
        self._drawn = drawn

    def collect(self) -> Iterator[Metric]:
        busy = GaugeMetricFamily("enginewright_gpu_utilisation",
                                 "Mean share of the time that the replicas' GPUs are busy, 0 to 1.", labels=OBJECT)
        watts = GaugeMetricFamily("enginewright_gpu_power_watts", "What the replicas' GPUs draw.", labels=OBJECT)
        memory = GaugeMetricFamily("enginewright_gpu_memory_bytes", "Memory in use on the replicas' GPUs.",
                                   labels=OBJECT)
        rates = GaugeMetricFamily("enginewright_inferences_per_joule",
                                  "Inferences for each joule that the replicas' GPUs drew in the last minute.",
                                  labels=OBJECT)
        for key, drawn in self._drawn().items():
            for family, value in ((busy, drawn.utilisation), (watts, drawn.watts), (memory, drawn.memory_bytes),
                                  (rates, drawn.inferences_per_joule)):
                if value is not None:
                    family.add_metric((key.namespace, key.name), value)
        yield from (busy, watts, memory, rates)
