"""Finding 7: an address of a user's choice held threads for as long as it liked, went where it redirected to, and read
other namespaces' samples by matchers that ended the query's braces.

Servers on loopback, and the operator's own client.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from enginewright.clients.errors import ClientError, TransientError
from enginewright.clients.prometheus import AT_ONCE, PrometheusClient, pending_query
from enginewright.core.problems import Problem
from enginewright.core.spec import Spec, parse_spec, validate

FOUND = b'{"status": "success", "data": {"resultType": "vector", "result": []}}'
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[str]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def dripping(head: bytes, drop: bytes, ended: asyncio.Semaphore) -> Serve:
    """``drop`` every 50 ms: less than any timeout between two reads. ``ended`` once the operator has hung up."""

    async def serve(reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            out.write(head)
            while not out.is_closing():
                out.write(drop)
                await out.drain()
                await asyncio.sleep(0.05)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            out.close()
            ended.release()

    return serve


DRIPS = {
    "a status line": (b"", b"H"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
    "a header": (b"HTTP/1.1 200 OK\r\nX: ", b"y"),
    "a body": (b"HTTP/1.1 200 OK\r\n\r\n", b" "),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "interim answers": (b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
}


@pytest.mark.parametrize("drip", DRIPS)
async def test_what_drips_is_hung_up_on_within_one_deadline(drip: str) -> None:
    """Each of these was read for as long as it went on, by a thread that nothing could end."""
    ended = asyncio.Semaphore(0)
    async with listening(dripping(*DRIPS[drip], ended)) as url, PrometheusClient(deadline=1) as client:
        with pytest.raises(ClientError):
            await client.pending(url, "team", "net")
        async with asyncio.timeout(30):
            await ended.acquire()


async def test_a_chain_of_redirects_has_no_deadline_for_each() -> None:
    asked = 0

    async def again(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(status=307, headers={"Location": f"/{asked}"})

    app = web.Application()
    app.router.add_get("/{path:.*}", again)
    async with TestServer(app) as server, PrometheusClient(deadline=60) as client:
        with pytest.raises(ClientError, match="307"):
            await client.pending(str(server.make_url("/")), "team", "net")
    assert asked == 1


async def test_who_gives_up_does_not_free_a_thread_that_still_runs() -> None:
    """Objects that ask one slow address, and give up at once, must not take all threads."""
    running, most, release = 0, 0, asyncio.Event()

    async def hold(reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await release.wait()
        out.close()

    async with listening(hold) as url, PrometheusClient(deadline=60) as client:
        for _ in range(40):
            query = asyncio.create_task(client.pending(url, "team", "net"))
            for _ in range(20):
                await asyncio.sleep(0)
            query.cancel()
            with pytest.raises(asyncio.CancelledError):
                await query
        threads = sum(thread.name.startswith("prometheus") for thread in threading.enumerate())
        release.set()
    assert threads <= AT_ONCE
    assert most <= AT_ONCE


async def test_slow_addresses_leave_the_honest_one_its_answers() -> None:
    """Two slow objects, asked again and again, and then an honest one."""
    release = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        await release.wait()
        out.close()

    async def honest(reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        out.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(FOUND), FOUND))
        out.close()

    async with (listening(hold) as one, listening(hold) as other, listening(honest) as good,
                PrometheusClient(deadline=60) as client):
        waiting = [asyncio.create_task(client.pending(url, "team", f"net{number}"))
                   for number in range(20) for url in (one, other)]
        assert await client.pending(good, "team", "net") == {}
        release.set()
        for answer in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(answer, TransientError)


@pytest.mark.parametrize("path", ["?x=", "#x", "/a?b=/c", "/a#b", "/a\\b", "/a b", "/a\nb"])
async def test_an_address_that_takes_in_what_is_added_to_it_is_not_asked(path: str) -> None:
    asked: list[str] = []

    async def answer(reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        asked.append("asked")
        out.close()

    async with listening(answer) as url, PrometheusClient(deadline=60) as client:
        with pytest.raises(ClientError, match="not the base address"):
            await client.pending(url + path, "team", "net")
    assert asked == []


def spec_with(**prometheus: str) -> tuple[Problem, ...]:
    found = parse_spec({
        "source": {"uri": "pvc://models/net"}, "placement": {"accelerator": "cpu"}, "store": {"uri": "pvc://engines"},
        "autoscaling": {"maxReplicas": 2, "source": "prometheus",
                        "prometheus": {"url": "http://p:9090", **prometheus}}})
    return validate(found) if isinstance(found, Spec) else found


@pytest.mark.parametrize("url", [
    "http://p:9090/?x=", "http://p:9090/#x", "http://p:9090/a?b", "http://user@p:9090", "http://user:word@p:9090/",
    "http://p\\@evil:9090", "http://p:9090\\@evil", "http://p:99999999", "http://p%40evil", "http://p:9090/%3Fa",
    "http:///p", "ftp://p", "http://p:9090/a b", "http://p;evil", "http://[::1]evil", "http://pé", "http://",
])
def test_addresses_with_surprises_are_refused_with_what_to_write(url: str) -> None:
    (problem,) = spec_with(url=url)
    assert problem.field == "spec.autoscaling.prometheus.url"
    assert "without user, query and fragment" in problem.remedy


@pytest.mark.parametrize("url", ["http://prometheus.monitoring:9090", "https://p.example/team-a/", "http://[fd00::1]:9090",
                                 "http://thanos-query.monitoring.svc.cluster.local:9090/a_b~c/d"])
def test_good_addresses(url: str) -> None:
    assert spec_with(url=url) == ()


ESCAPES = ['a="b"}', '} or up{a="b"', 'a="b"} or nv_inference_pending_request_count{a="b"', 'a="b",} or {b="c"',
           "a='b'", "a=`b`", 'a=b', 'a="b"c="d"', 'a="b" # c', 'a="b\\', 'a="b\\x7d"', 'a="b\\u007d"', ',',
           'a="b",,c="d"', 'a="b"[5m]', "{", 'a!"b"', '"a"="b"', 'ä="b"', 'a="b\n"', 'a="b" offset 5m']
RESERVED = ['namespace="other"', 'a="b",namespace=~".*"', 'pod=~".+"', 'pod!="x"', ' namespace = "x"',
            '__name__=~".+"', 'a="b" , pod !~ "x"']


@pytest.mark.parametrize("labels", [*ESCAPES, *RESERVED])
def test_matchers_that_leave_the_braces_or_the_namespace_are_refused(labels: str) -> None:
    (problem,) = spec_with(labels=labels)
    assert problem.field == "spec.autoscaling.prometheus.labels"
    assert "label matchers" in problem.remedy or "labels other than namespace, pod" in problem.remedy
    with pytest.raises(ValueError, match="label"):
        pending_query("team", "net", labels)


@pytest.mark.parametrize("labels", [*ESCAPES, *RESERVED])
async def test_nor_are_they_asked_for_by_an_object_that_is_older_than_the_rule(labels: str) -> None:
    async with PrometheusClient() as client:
        with pytest.raises(ClientError, match=r"spec\.autoscaling\.prometheus\.labels"):
            await client.pending("http://127.0.0.1:1", "team", "net", labels)


@pytest.mark.parametrize(("labels", "written"), [
    ("", ""), (' cluster = "eu-1" ', 'cluster="eu-1"'),
    ('a="b",c!="d",e=~"f|g",h!~"i.*",', 'a="b",c!="d",e=~"f|g",h!~"i.*"'),
    ('a="}"', 'a="}"'), (r'a=~"b\\.c"', r'a=~"b\\.c"'), (r'a="say \"no\""', r'a="say \"no\""'),
    ('a="grün 🟢"', 'a="grün 🟢"'),
])
def test_what_matchers_are_for_still_works(labels: str, written: str) -> None:
    assert spec_with(labels=labels) == ()
    ours = 'namespace="team",pod=~"net-[0-9a-f]+-[a-z0-9]+-[a-z0-9]+"'
    whole = f"nv_inference_pending_request_count{{{ours}{',' if written else ''}{written}}}"
    assert pending_query("team", "net", labels).startswith(f"{whole} or ")


@given(st.text(alphabet='ab=~!",{}\\ \n|namespcod_é', max_size=40))
def test_whatever_is_taken_stays_between_the_braces(labels: str) -> None:
    """Read as Prometheus' lexer does: outside of quoted values there is no brace, and every name is the user's."""
    try:
        query = pending_query("team", "net", labels)
    except ValueError:
        return
    selectors = query.split("nv_inference_pending_request_count")[1:]
    for one in selectors:
        inside = outside_of_values(one)
        assert inside[: inside.index("}")].count("{") == 1
        names = [word.rstrip("=!~ ") for word in inside[1 : inside.index("}")].split(",")]
        assert names[:2] == ["namespace", "pod"]
        assert not {"namespace", "pod", "__name__"} & set(names[2:])


def outside_of_values(text: str) -> str:
    """``text`` without what stands in double quotes, and without these."""
    found, quoted, escaped = "", False, False
    for sign in text:
        if quoted and not escaped and sign == "\\":
            escaped = True
            continue
        if sign == '"' and not escaped:
            quoted = not quoted
        elif not quoted:
            found += sign
        escaped = False
    return found
