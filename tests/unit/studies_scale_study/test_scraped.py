"""The pages that the scale study serves, what it makes of answers to breaches, and its page."""

from __future__ import annotations

import math
from collections import Counter

from enginewright.clients.triton import parse_metrics
from scale_study.meters import Reading
from scale_study.page import page as rendered
from scale_study.pages import answers, page
from scale_study.scraped import costs, figures


def test_the_pages_are_read_as_tritons_are() -> None:
    assert parse_metrics(page(0)).queued == 0
    found = parse_metrics(page(8))
    assert (found.pending, found.quantiles[0.99]) == ({"m": 8.0}, 0.0)
    assert 2_000 < len(page(0)) < 4_000  # a tritonserver's with one model has 3.2 KB


def test_each_address_tells_its_own_queue() -> None:
    answer = answers({"10.100.0.1": 8})
    assert b" 8\n" in answer("10.100.0.1")
    assert b" 8\n" not in answer("10.100.0.2")


def test_answers_that_did_not_come_are_told_apart() -> None:
    assert figures([0.5, 1.5, math.inf]) == {"breaches": 3, "at_once": 50, "without_answer": 1, "p50_s": 1.5,
                                             "p99_s": 1.5}
    assert figures([math.inf])["p99_s"] is None


def test_what_answers_cost_is_told_for_each_breach() -> None:
    used = [Reading({"operator": 0.5, "etcd": seconds}, Counter({("scale", "deployments"): 50}), Counter())
            for seconds in (0.25, 0.75)]
    assert costs(used, 100) == {"cpu_ms_a_breach": {"etcd": 10.0, "operator": 10.0},
                                "calls_a_breach": {"scale deployments": 1.0}}


SIZE = {
    "n": 300, "namespaces": 1, "deployments_per_s": 9.3, "ready_s": 35.5, "apiserver_cpu_s": 35.6, "etcd_cpu_s": 8.6,
    "operator_cpu_s": 14.1, "requests": {"create": 3000}, "operator_rss_mb": 124, "load": 1,
    "idle": {"writes": 30, "requests_per_s": 0.68, "cpu_share": 0.026},
    "resync": {"requests": 11, "apiserver_cpu_s": 1.4},
}
SCRAPED = {"replicas": 300, "period_s": 1.01, "cpu_share": 0.12, "writes": 0, "breaches": 200, "at_once": 50,
           "without_answer": 0, "p50_s": 0.9, "p99_s": 1.4}


def test_the_page_has_what_was_read() -> None:
    found = {"hardware": {"device": "a CPU", "cores": 2, "memory_gib": 24}, "recorded": "2026-11-26T00:00:00Z"}
    text = rendered({**found, "sizes": [{**SIZE, "scraped": SCRAPED}]})
    assert "| 300 | 1.01 | 12.0 | 200 | 0.9 | 1.4 | 0 | – | – |\n" in text
    alone = {**SCRAPED, "alone": {"p50_s": 0.7, "p99_s": 1.1}}
    assert "| 200 | 0.9 | 1.4 | 0 | 0.7 | 1.1 |\n" in rendered({**found, "sizes": [{**SIZE, "scraped": alone}]})
    # Runs from before it was measured have none.
    assert "## Read queues" not in rendered({**found, "sizes": [SIZE]})
