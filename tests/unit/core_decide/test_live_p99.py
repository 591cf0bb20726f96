"""The p99 that servers count themselves, beside the build's: shown, and written sparingly."""

from __future__ import annotations

import pytest

from support.cluster import SPEC, Cluster


def scaled() -> Cluster:
    cluster = Cluster(spec={**SPEC, "autoscaling": {"maxReplicas": 4, "algorithm": "queue"}})
    cluster.settle()
    return cluster


def look(cluster: Cluster, p99: float | None) -> tuple[object, object]:
    """What is said after a scrape that gave ``p99``, by the block and by the column."""
    cluster.queue(1.0, seconds=1, p99=p99)
    cluster.operate()
    return cluster.status["autoscaling"].get("p99Milliseconds"), cluster.status["summary"].get("liveP99")


def test_it_is_said_beside_the_builds() -> None:
    cluster = scaled()
    assert look(cluster, 12.3456789) == (12.346, "12.3 ms")
    assert cluster.status["summary"]["p99"] == "9.0 ms"


def test_servers_that_export_none_have_none() -> None:
    cluster = scaled()
    assert look(cluster, None) == (None, None)
    assert "p99Time" not in cluster.status["autoscaling"]


@pytest.mark.parametrize(("seconds", "p99", "said"), [
    (30, 21.0, 20.0),  # hardly another
    (3, 40.0, 20.0),  # said a moment ago
    (30, 40.0, 40.0),
    (30, 10.0, 10.0),
])
def test_it_is_written_again_where_it_differs_visibly_and_not_each_second(
        seconds: int, p99: float, said: float) -> None:
    cluster = scaled()
    look(cluster, 20.0)
    cluster.wait(seconds)
    assert look(cluster, p99)[0] == said


def test_it_goes_when_servers_tell_it_no_more() -> None:
    cluster = scaled()
    look(cluster, 20.0)
    cluster.wait(30)
    assert look(cluster, None) == (None, None)
    assert "p99Time" not in cluster.status["autoscaling"]
