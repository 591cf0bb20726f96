"""The page docs/benchmarks/scale.md, from what runs have found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from bench.machine import processor_of
from tables import head, row

HEAD: Final = """# What many models cost

`make scale-study` makes `scale.json` and this page: OptimisedModels whose engine is in the store and whose source is
named by its digest, all created at once, on a real etcd, apiserver and controller manager, with `enginewright run` as
the chart grants it. Containers are acted. KServe's manager does the same work after it, on a control plane of its own:
as many InferenceServices, each a Deployment and a Service. CPU is in milliseconds an object, from the first creation
until the last object was `Ready`; that of the apiserver and of etcd holds what any Deployment costs.

"""
COLUMNS: Final = ("objects", "namespaces", "whose", "Deployments/s", "all `Ready` after, s", "apiserver, ms",
                  "etcd, ms", "operator, ms", "calls an object", "memory, MB")


def page(found: Mapping[str, Any], notes: str = "") -> str:
    hardware = found["hardware"]
    machine = (f"{processor_of(hardware)}, {_cores(hardware)}, {hardware['memory_gib']} GiB, "
               f"{found['recorded'][:10]}. Load of the machine, mean over one minute, at the end of each size: "
               f"{', '.join(str(size['load']) for size in found['sizes'])}.\n\n")
    sizes = found["sizes"]
    return "".join((HEAD, machine, _table(COLUMNS, _rows(sizes)), _unfinished(sizes), "\n", _idle(sizes),
                    _read(sizes), notes))


def _cores(hardware: Mapping[str, Any]) -> str:
    """A study may be kept to some of the machine's, so that others run beside it."""
    cores, of = hardware["cores"], hardware.get("of_cores", hardware["cores"])
    return f"{cores} cores" if cores == of else f"{cores} of {of} cores for each size"


def _rows(sizes: Iterable[Mapping[str, Any]]) -> Iterable[tuple[Any, ...]]:
    for size in sizes:
        if "ready_s" in size:
            yield _row(size, size, "Enginewright", size["operator_cpu_s"], size.get("operator_rss_mb", "–"))
        if "ready_s" in (other := size.get("kserve", {})):
            yield _row(size, other, "KServe", other["manager_cpu_s"], other["manager_rss_mb"])


def _unfinished(sizes: Iterable[Mapping[str, Any]]) -> str:
    parts = ((size, whose, part["unfinished"]) for size in sizes
             for whose, part in (("Enginewright", size), ("KServe", size.get("kserve", {}))) if "unfinished" in part)
    lines = [f"- {size['n']} objects, namespaces: {size['namespaces']}, {whose}: {why}\n" for size, whose, why in parts]
    return "\nNot finished:\n\n" + "".join(lines) if lines else ""


def _row(size: Mapping[str, Any], used: Mapping[str, Any], whose: str, cpu: float, memory: object) -> tuple[Any, ...]:
    n = size["n"]
    each = (f"{1000 * seconds / n:.0f}" for seconds in (used["apiserver_cpu_s"], used["etcd_cpu_s"], cpu))
    return (n, size["namespaces"], whose, used["deployments_per_s"], used["ready_s"], *each,
            f"{sum(used['requests'].values()) / n:.1f}", memory)


def _idle(sizes: Iterable[Mapping[str, Any]]) -> str:
    columns = ("objects", "namespaces", "writes", "calls/s", "operator, % of a core", "calls of a resync",
               "apiserver meanwhile, CPU s")
    rows = ((size["n"], size["namespaces"], size["idle"]["writes"], size["idle"]["requests_per_s"],
             f"{100 * size['idle']['cpu_share']:.1f}", size["resync"]["requests"], size["resync"]["apiserver_cpu_s"])
            for size in sizes if "idle" in size)
    return ("## At rest\n\nFive minutes, all objects `Ready`, with one resync and one comparison of memory in them. "
            "The writes are renewals of the Lease.\n\n" + _table(columns, rows))


def _read(sizes: Iterable[Mapping[str, Any]]) -> str:
    columns = ("replicas", "read every, s", "operator, % of a core", "breaches", "replicas written after, median, s",
               "99th percentile, s", "without an answer", "controllers stopped: median, s", "99th percentile, s")
    rows = [(one["replicas"], one["period_s"], f"{100 * one['cpu_share']:.1f}", one["breaches"], one["p50_s"],
             one["p99_s"], one["without_answer"], *(one.get("alone", {}).get(name, "–") for name in ("p50_s", "p99_s")))
            for size in sizes if (one := size.get("scraped"))]
    return ("\n## Read queues\n\nThen all objects scale by their queues, each with one replica, whose metrics page of "
            "2 KB the operator reads. At four moments the queues of 50 objects breach their target at once: the time "
            "is from that moment until the Deployment has another number of replicas, by a watch of `kubectl`. Then "
            "once more with the controller manager stopped until all are written: no ReplicaSet and no pod follows, "
            "which other machines do in a cluster and the same cores here.\n\n"
            + _table(columns, rows)) if rows else ""


def _table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    names = tuple(columns)
    return "\n".join([*head(*names, right=range(len(names))), *map(row, rows), ""])
