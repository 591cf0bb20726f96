"""To no replica and back on a real node, by HTTP and by gRPC: every request is answered.

``ENGINEWRIGHT_CYCLES`` is how often (2).
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
from datetime import datetime
from typing import Any

from demo import traffic
from demo.__main__ import SYSTEM_NAMESPACE
from support.apiserver import eventually
from support.bench import Bench

ZERO = {"minReplicas": 0, "maxReplicas": 2, "scaleToZeroAfterSeconds": 3, "holdSeconds": 90}
CYCLES = int(os.environ.get("ENGINEWRIGHT_CYCLES", "2"))
# Six clients ask at once, each twice: the first question is held, the second comes while the Service changes.
BY_HTTP = """
import http.client, json, sys, threading, time
answers = []
def ask():
    connection = http.client.HTTPConnection(sys.argv[1], 8000, timeout=100)
    for _ in range(2):
        try:
            connection.request("GET", "/v2/models/tiny")
            answer = connection.getresponse()
            body = answer.read()
            answers.append(answer.status == 200 and json.loads(body)["name"] == "tiny")
        except (OSError, http.client.HTTPException, ValueError) as error:
            print(repr(error))
            answers.append(False)
began = time.time()
threads = [threading.Thread(target=ask) for _ in range(6)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(json.dumps({"requests": len(answers), "failed": answers.count(False), "began": began}))
"""


def start_client(bench: Bench) -> None:
    """A pod to send requests from."""
    job = traffic._job(bench.namespace, "client", bench.images["builder"], [])
    job["spec"]["template"]["spec"]["containers"][0]["command"] = ["sleep", "86400"]
    bench.kube("apply", "-f", "-", stdin=json.dumps(job))
    traffic.await_start(bench.kube, bench.namespace, "client")


def ask(bench: Bench, *command: str) -> dict[str, Any]:
    """The last line that ``command`` prints in the client's pod."""
    said = bench.kube("exec", "-n", bench.namespace, "job/client", "--", *command, timeout=400)
    result: dict[str, Any] = json.loads(said.splitlines()[-1])
    return result


def by_http(bench: Bench) -> dict[str, Any]:
    return ask(bench, "python3", "-c", BY_HTTP, f"tiny.{bench.namespace}.svc")


def by_grpc(bench: Bench, *more: str) -> dict[str, Any]:
    how = more or ("--closed", "6", "--max-requests", "12", "--seconds", "120")
    return ask(bench, "python3", "-m", "enginewright_builder.load", "--url", f"tiny.{bench.namespace}.svc:8001",
               "--model", "tiny", "--inputs", "/models/evaluation.npz", "--timeout", "100", "--json", *how)


def asleep(bench: Bench) -> dict[str, Any]:
    """The status then. A replica that was taken away is ready for another moment."""
    bench.wait_reason("tiny", "ScalingActive", "ScaledToZero")
    status: dict[str, Any] = bench.wait("tiny", "jsonpath={.status.replicas}=0")["status"]
    bench.wait("tiny", "jsonpath={.status.readyReplicas}=0")
    return status


def woken(bench: Bench, before: dict[str, Any]) -> None:
    """Waits until status tells of a way up from none that is not in the status ``before``. The operator writes it after
    the replicas, so that the answers may be there first."""
    async def told() -> bool:
        decisions = bench.model("tiny")["status"]["autoscaling"]["decisions"]
        made = [one for one in decisions if one not in before["autoscaling"]["decisions"]]
        assert (0, 1) in [(one["from"], one["to"]) for one in made], decisions
        return True

    asyncio.run(eventually(told, period=1.0))


def served(bench: Bench) -> None:
    bench.apply("tiny", autoscaling=ZERO)
    bench.wait("tiny", "condition=Ready")
    start_client(bench)


def wakings(bench: Bench) -> list[float]:
    """When the operator wrote that one replica is to start, in seconds since the epoch."""
    text = bench.kube("logs", "-n", SYSTEM_NAMESPACE, "deployment/enginewright", "--tail=20000")
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    written = [line["timestamp"] for line in lines if line.get("object") == f"{bench.namespace}/tiny"
               and line.get("verb") == "scale" and line.get("why") == "1 replica wanted"]
    return [datetime.fromisoformat(time).timestamp() for time in written]


def test_to_zero_and_back(stocked_bench: Bench) -> None:
    bench = stocked_bench
    served(bench)
    waited = []
    for cycle in range(CYCLES):
        before = asleep(bench)
        result = by_grpc(bench) if cycle % 2 else by_http(bench)
        assert result["failed"] == 0, result
        assert result["requests"] >= 12
        if "began" in result:
            # None where the kubelet has just begun another log file, or where the activator did not answer the operator
            # in time, which then wrote one replica before the first request came.
            waited += sorted(time - result["began"] for time in wakings(bench) if time > result["began"])[:1]
        woken(bench, before)
    if waited:
        print(f"\n{CYCLES} times to zero and back, none lost; from the first request to the write of replicas: "
              f"{statistics.median(waited):.2f} s median, {max(waited):.2f} s at most, of {len(waited)}")


def test_requests_at_any_moment(stocked_bench: Bench) -> None:
    """A trickle whose gaps are now shorter, now longer than what puts the last replica to sleep."""
    bench = stocked_bench
    served(bench)
    result = by_grpc(bench, "--rate", "0.25", "--seconds", "70", "--seed", "6")
    assert result["failed"] == 0, result
    assert result["requests"] >= 10
    decisions = bench.model("tiny")["status"]["autoscaling"]["decisions"]
    assert 0 in [decision["to"] for decision in decisions], "it never slept"


def test_switched_off_it_leaves_nothing_behind(stocked_bench: Bench) -> None:
    bench = stocked_bench
    served(bench)
    asleep(bench)
    bench.apply("tiny", autoscaling={**ZERO, "minReplicas": 1})
    bench.wait_reason("tiny", "Ready", "Serving")
    for kind in ("deployment", "service"):
        name = {"deployment": "tiny-activator", "service": "tiny-replicas"}[kind]
        bench.kube("wait", kind, name, "-n", bench.namespace, "--for=delete", "--timeout=240s")
    assert by_http(bench)["failed"] == 0
