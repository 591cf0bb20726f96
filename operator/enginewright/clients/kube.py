"""The Kubernetes API, as far as the operator needs it.

Stands on the transport of the official package's asyncio half (``kubernetes.aio``): its kubeconfig and in-cluster
loaders, token refresh, TLS and connection pool. Objects stay plain dictionaries: the generated models cost more time to
build than the calls themselves, and server-side apply wants exactly what we state and no defaults of theirs.

What it does to which resource; the chart's ClusterRole grants this and no more:

====================================  =========================  ================================================
Resource                              Verbs                      What for
====================================  =========================  ================================================
optimisedmodels (enginewright.io)     get list watch create      the objects; the resync lists metadata only; one for
                                      patch delete               each class of a fleet
optimisedmodels/status                patch                      status, by server-side apply
optimisedmodels/finalizers            update                     owner references that block deletion, where the
                                                                 cluster enforces who may set them
jobs (batch)                          get list watch create      resolve, ask and build Jobs; the one that asks a
                                      delete                     server image for several objects
pods                                  get list watch delete      pods of Jobs and replicas; one that refused an engine
                                                                 which was built again since
pods/log                              get                        a build's progress, or its outcome
deployments (apps)                    get list watch create      revisions
                                      patch delete
deployments/scale                     patch                      replicas
services                              get list watch create      the model's Service, one of each revision for routes
                                      patch delete
configmaps                            get list watch create      build requests, engine records
                                      patch delete
secrets                               create                     the key that build Jobs sign engines with, blindly:
                                                                 none is ever read
persistentvolumeclaims                get list watch             claims that a spec names
endpointslices (discovery.k8s.io)     get list watch             who gets traffic
poddisruptionbudgets (policy)         get list watch create      one for each model that may run two replicas
                                      patch
resourceclaimtemplates                list create patch          MIG by dynamic resource allocation
(resource.k8s.io)
httproutes                            list create patch delete   shares of the traffic, where asked for
(gateway.networking.k8s.io)
grpcroutes                            list create patch delete   the same
(gateway.networking.k8s.io)
leases (coordination.k8s.io)          get list watch create      who builds an engine that several ask for; which of
                                      patch delete               several operators works (``get``, in its own
                                                                 namespace, and only there)
nodes                                 list                       what is free of their GPUs; only in all namespaces,
                                                                 and only with ``rbac.nodes``
events                                create get patch           events and how often they came
====================================  =========================  ================================================

Besides, it reads the API's published schema (``/openapi/v3``), which Kubernetes lets everybody who is known
(``system:discovery``).

``create`` stands beside ``patch`` because server-side apply of an object that is not there yet needs both.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol, Self, TypeVar
from urllib.parse import urlencode

import aiohttp
from aiohttp.connector import Connection
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from enginewright.clients.answers import failure
from enginewright.clients.direct import DirectSession
from enginewright.clients.errors import (
    ClientError,
    ConflictError,
    RefusedError,
    TooLargeError,
    TransientError,
    UnexpectedError,
)
from enginewright.clients.resources import DEPLOYMENT, OPTIMISED_MODEL, POD, Resource, resource_of_manifest
from enginewright.core import labels as names

Object = dict[str, Any]
T = TypeVar("T")
# verb, resource, HTTP status (0 when no answer came), seconds
CallObserver = Callable[[str, str, int, float], None]
# resource, namespace, name, the object as it is after the write, None where the answer does not have it, and its
# resourceVersion, empty where the answer has not even that
WriteObserver = Callable[[Resource, str, str, Object | None, str], None]


class KnownPages(Protocol):
    """What has been read of a list before. ``content`` is a digest of a page's items as the apiserver wrote them."""

    def as_before(self, number: int, content: bytes) -> bool:
        """Whether the page is known, so that its objects need not be passed on. Number 0 comes first."""
        ...

    def parsed(self, number: int, content: bytes, items: Sequence[Object]) -> None: ...


APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
JSON: Final = "application/json"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

# Items of a page, and of one that has metadata only. A page of more than PAGE_BYTES is asked for again with fewer
# items: others choose how large an object is, and the event loop stands still while a page is parsed.
PAGE: Final = 100
ITEMS: Final = b'"items":['
METADATA_PAGE: Final = 500
PAGE_BYTES: Final = 4 << 20
# No answer is read further. etcd takes 1.5 MiB of an object, which JSON may write with six characters for one.
ANSWER_BYTES: Final = 16 << 20
# But that of the apiserver's cache, which has no pages: a thousand nodes with their images' names.
CACHED_BYTES: Final = 64 << 20
# How often a list begins again because its continue token expired.
RESTARTS: Final = 3
EXPIRED: Final = 410
LOG_BYTES: Final = 1 << 18
# A Deployment that was just made has its status written several times within milliseconds, each with another
# resourceVersion.
ATTEMPTS: Final = 8
PAUSE: Final = 0.01  # seconds before the second attempt; each further one waits twice as long


def checked_request(before_write: Callable[[], None]) -> type[aiohttp.ClientRequest]:
    """A request waits for a connection before it is sent: a check before that would be out of date."""

    class CheckedRequest(aiohttp.ClientRequest):
        async def send(self, conn: Connection) -> aiohttp.ClientResponse:
            if self.method != "GET":
                before_write()
            return await super().send(conn)

    return CheckedRequest


class _DirectRest(RESTClientObject):
    """Follows no redirect: the apiserver sends none, and a write with its body and its token is for the apiserver
    alone. The apiserver packs answers of more than 128 KiB, and the operator trusts it with their size."""

    def _create_pool_manager(self) -> DirectSession:  # type: ignore[override]
        options = {"trust_env": True, "auto_decompress": True, **(self.configuration.client_session_kwargs or {})}
        return DirectSession(self._create_connector(), **options)


class KubeClient:
    """Asynchronous; one for the whole process. Methods raise :class:`~enginewright.clients.errors.ClientError`.

    ``deadline`` is seconds for one call, answer read included. ``before_write`` is called before each request that is
    to change something, when the connection is there and nothing is sent yet; when it raises, nothing is.
    """

    def __init__(
        self, configuration: Configuration, *, deadline: float = 15.0, observer: CallObserver | None = None,
        before_write: Callable[[], None] | None = None,
    ) -> None:
        if before_write is not None:
            configuration.client_session_kwargs = {
                **(configuration.client_session_kwargs or {}), "request_class": checked_request(before_write),
            }
        self._api = ApiClient(configuration)
        self._api.rest_client = _DirectRest(configuration)
        self._api.user_agent = "enginewright"
        self._deadline = deadline
        self._observer = observer
        self._wrote: WriteObserver = lambda *_: None

    def tell_writes(self, observer: WriteObserver) -> None:
        """``observer`` is called after each write that the apiserver has carried out, before it is returned from."""
        self._wrote = observer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._api.close()

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        return await self._json("get", resource, resource.path(namespace, name))

    async def get_metadata(self, resource: Resource, namespace: str, name: str) -> Object:
        """As :meth:`get`, but the apiserver sends ``metadata`` alone."""
        return await self._json("get", resource, resource.path(namespace, name), accept=METADATA)

    async def list_all(self, resource: Resource, namespace: str | None, *, labels: str = "") -> list[Object]:
        """All pages. ``labels`` is a label selector. Items carry no apiVersion and kind, as the apiserver gives
        them."""
        return await self.gather(resource, namespace, lambda raw: raw, labels=labels)

    async def gather(
        self, resource: Resource, namespace: str | None, keep: Callable[[Object], T], *, labels: str = "",
        metadata: bool = False, known: KnownPages | None = None,
    ) -> list[T]:
        """What ``keep`` makes of each object of a list. The list is read page by page, so that no more than one page of
        whole objects is held at a time. With ``metadata`` the apiserver sends the objects' metadata alone. Pages that
        are ``known`` are not parsed, and their objects left out."""
        for _ in range(RESTARTS):
            kept: list[T] = []
            try:
                async for page in self._pages(resource, namespace, labels, metadata, known):
                    kept.extend(map(keep, page))
            except ClientError as error:
                if error.status != EXPIRED:
                    raise
            else:
                return kept
        path = resource.path(namespace)
        raise TransientError(f"the continue token expired {RESTARTS} times", call=f"list {path}", status=EXPIRED)

    async def find(
        self, resource: Resource, namespace: str, name: str, *, most: int = ANSWER_BYTES, labels: str = ""
    ) -> Object | None:
        """The object of that name, if ``labels`` select it; None where there is none. For kinds that the operator may
        list and not get. Raises :class:`TooLargeError` for an answer of more than ``most`` bytes, which is not
        parsed."""
        query = {"fieldSelector": f"metadata.name={name}", "limit": "1"}
        if labels:
            query["labelSelector"] = labels
        page = await self._json("list", resource, resource.path(namespace), query=query, most=most)
        return next(iter(page.get("items") or ()), None)

    async def list_cached(self, resource: Resource, *, labels: str = "", fields: str = "") -> list[Object]:
        """Of all namespaces, at once and out of the apiserver's own cache, which may lag behind by seconds: it costs
        etcd nothing, and for pods of one node (``spec.nodeName``) the apiserver looks at no others. ``fields`` is a
        field selector."""
        query = {"resourceVersion": "0", "labelSelector": labels, "fieldSelector": fields}
        asked = {key: value for key, value in query.items() if value}
        page = await self._json("list", resource, resource.path(None), query=asked, most=CACHED_BYTES)
        return list(page.get("items") or ())

    async def list_metadata(self, resource: Resource, namespace: str | None) -> list[Object]:
        """As :meth:`list_all`, but the apiserver sends ``metadata`` alone."""
        return await self.gather(resource, namespace, lambda raw: raw, metadata=True)

    async def apply(self, manifest: Mapping[str, Any], *, namespace: str, force: bool = True, uid: str = "",
                    version: str = "") -> Object:
        """Server-side apply. With ``force`` what we state is ours, also where another manager wrote it before; without,
        raises :class:`ConflictError` when another manager wrote another value. It raises that also, with ``force`` or
        without, when ``uid`` names another object or ``version`` is not its resourceVersion any more."""
        resource = resource_of_manifest(manifest)
        if conditions := {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value}:
            manifest = {**manifest, "metadata": {**manifest["metadata"], **conditions}}
        path = resource.path(namespace, manifest["metadata"]["name"])
        query = {"fieldManager": names.FIELD_MANAGER, "force": str(force).lower()}
        return await self._write("apply", resource, path, query=query, body=manifest, content_type=APPLY)

    async def apply_status(self, namespace: str, name: str, version: str, status: Mapping[str, Any]) -> Object:
        """The whole status of an ``OptimisedModel``: what is not in ``status`` any more goes. ``version`` is the
        resourceVersion that the status was derived from; raises :class:`ConflictError` when the object has changed
        since, or was deleted and made again."""
        body = {
            "apiVersion": OPTIMISED_MODEL.api_version,
            "kind": OPTIMISED_MODEL.kind,
            # Not the UID: server-side apply of a subresource does not look at it.
            "metadata": {"name": name, "namespace": namespace, "resourceVersion": version},
            "status": status,
        }
        path = OPTIMISED_MODEL.path(namespace, name, "status")
        query = {"fieldManager": names.FIELD_MANAGER_STATUS, "force": "true"}
        return await self._write("apply", OPTIMISED_MODEL, path, query=query, body=body, content_type=APPLY)

    async def create(self, manifest: Mapping[str, Any], *, namespace: str, strict: bool = False) -> Object:
        """Raises :class:`AlreadyExistsError`. ``strict``: as with :meth:`apply`, the apiserver refuses fields that it
        does not know, where it drops them otherwise."""
        resource = resource_of_manifest(manifest)
        query = {"fieldManager": names.FIELD_MANAGER, **({"fieldValidation": "Strict"} if strict else {})}
        return await self._write("create", resource, resource.path(namespace), query=query, body=manifest)

    async def patch(self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any]) -> Object:
        """Merge patch."""
        path = resource.path(namespace, name)
        return await self._write(
            "patch", resource, path, query={"fieldManager": names.FIELD_MANAGER}, body=body, content_type=MERGE
        )

    async def own(self, resource: Resource, metadata: Mapping[str, Any], managers: Sequence[Object]) -> Object:
        """Makes ``managers`` the managers of the fields of the object that has this ``metadata``. Raises
        :class:`ConflictError` when it has changed since."""
        body = [{"op": "replace", "path": "/metadata/managedFields", "value": managers},
                {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]}]
        path = resource.path(metadata["namespace"], metadata["name"])
        return await self._write("patch", resource, path, query={"fieldManager": names.FIELD_MANAGER}, body=body,
                                 content_type=JSON_PATCH)

    async def delete(self, resource: Resource, namespace: str, name: str, *, uid: str = "", version: str = "",
                     generation: int = 0) -> None:
        """Background deletion. Raises :class:`NotFoundError`, and :class:`ConflictError` when ``uid`` names another
        object or ``version`` is not its resourceVersion any more; with ``generation`` only when that has changed."""
        if generation:
            await self._unless_changed(resource, namespace, name, (uid, generation), version,
                                       lambda newest: self.delete(resource, namespace, name, uid=uid, version=newest))
            return
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if preconditions := {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value}:
            body["preconditions"] = preconditions
        await self._json("delete", resource, resource.path(namespace, name), body=body)
        self._wrote(resource, namespace, name, None, "")

    async def scale(self, namespace: str, deployment: str, replicas: int, *, uid: str, version: str,
                    generation: int) -> None:
        """Applies ``replicas`` through ``/scale``, under a field manager of its own. The other arguments say which
        Deployment that was decided on: raises :class:`ConflictError` when its spec has changed since, so that two
        scalers never overwrite each other unseen. Other writes to it, its status above all, are no conflict."""
        await self._unless_changed(DEPLOYMENT, namespace, deployment, (uid, generation), version,
                                   lambda newest: self._apply_scale(namespace, deployment, replicas, newest))

    async def _apply_scale(self, namespace: str, deployment: str, replicas: int, version: str) -> None:
        metadata = {"name": deployment, "namespace": namespace, "resourceVersion": version}
        # Server-side apply, because a merge patch of /scale leaves no trace of who owns the replicas.
        body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": replicas}}
        query = {"fieldManager": names.FIELD_MANAGER_SCALER, "force": "true"}
        path = DEPLOYMENT.path(namespace, deployment, "scale")
        scale = await self._json("scale", DEPLOYMENT, path, query=query, body=body, content_type=APPLY)
        self._wrote(DEPLOYMENT, namespace, deployment, None, _version_of(scale))

    async def _unless_changed(
        self, resource: Resource, namespace: str, name: str, seen: tuple[str, int], version: str,
        write: Callable[[str], Awaitable[None]],
    ) -> None:
        """``write`` gets a resourceVersion: ``version``, and after a conflict a later one for as long as the object has
        the UID and the generation that were ``seen``. Raises :class:`ConflictError` when it has not."""
        for attempt in range(ATTEMPTS):
            try:
                await write(version)
            except ConflictError:
                if attempt == ATTEMPTS - 1:
                    raise
                await asyncio.sleep(PAUSE * 2**attempt)
                metadata = (await self.get(resource, namespace, name))["metadata"]
                if (metadata["uid"], metadata.get("generation")) != seen:
                    raise
                version = metadata["resourceVersion"]
            else:
                return

    async def logs(self, namespace: str, pod: str, container: str, *, tail: int, deadline: float,
                   most: int = LOG_BYTES) -> str:
        """The last ``tail`` lines, ``most`` bytes of them; empty when the container has not started yet. The apiserver
        asks the node for them, which may be gone: hence a ``deadline`` of their own."""
        query = {"container": container, "tailLines": str(tail), "limitBytes": str(most)}
        try:
            async with asyncio.timeout(deadline):
                _, payload = await self._call("logs", POD, "GET", POD.path(namespace, pod, "log"), query=query)
        except TimeoutError as error:
            raise TransientError(f"no log within {deadline:g} s", call=f"logs {namespace}/{pod}") from error
        except RefusedError as error:
            # 400: the container waits; 404: the pod is gone. Both mean that there is nothing to read.
            if error.status in (400, 404):
                return ""
            raise
        return payload.decode("utf-8", "replace")

    async def published(self, resource: Resource) -> Object:
        """The OpenAPI v3 document of the resource's group and version."""
        return await self._json("get", resource, f"/openapi/v3/apis/{resource.api_version}")

    async def _pages(
        self, resource: Resource, namespace: str | None, labels: str, metadata: bool, known: KnownPages | None = None,
    ) -> AsyncIterator[list[Object]]:
        path = resource.path(namespace)
        limit, accept = (METADATA_PAGE, METADATA_LIST) if metadata else (PAGE, JSON)
        query, number = {"labelSelector": labels} if labels else {}, 0
        while True:
            query["limit"] = str(limit)
            most = PAGE_BYTES if limit > 1 else ANSWER_BYTES
            try:
                call, payload = await self._call("list", resource, "GET", path, query=query, accept=accept, most=most)
            except TooLargeError:
                if limit == 1:
                    raise
                limit = max(1, limit // 4)
                continue
            page = _page(call, payload, number, known)
            yield page.get("items") or []
            number += 1
            token = page.get("metadata", {}).get("continue")
            if not token:
                return
            query["continue"] = token

    async def _write(
        self, verb: str, resource: Resource, path: str, *, query: Mapping[str, str],
        body: Mapping[str, Any] | Sequence[Object], content_type: str = JSON,
    ) -> Object:
        """The object as it is after the write."""
        written = await self._json(verb, resource, path, query=query, body=body, content_type=content_type)
        metadata = written.get("metadata") or {}
        self._wrote(resource, str(metadata.get("namespace") or ""), str(metadata.get("name") or ""), written,
                    _version_of(written))
        return written

    async def _json(
        self, verb: str, resource: Resource, path: str, *, query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | Sequence[Object] | None = None, content_type: str = JSON, accept: str = JSON,
        most: int = ANSWER_BYTES,
    ) -> Object:
        method = {"get": "GET", "list": "GET", "create": "POST", "delete": "DELETE"}.get(verb, "PATCH")
        call, payload = await self._call(
            verb, resource, method, path, query=query, body=body, content_type=content_type, accept=accept, most=most
        )
        return _document(call, payload)

    async def _call(
        self, verb: str, resource: Resource, method: str, path: str, *, query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | Sequence[Object] | None = None, content_type: str = JSON, accept: str = JSON,
        most: int = ANSWER_BYTES,
    ) -> tuple[str, bytes]:
        """The call's name for messages, and the answer's bytes."""
        call = f"{verb} {path}"
        began = time.monotonic()
        status = 0
        try:
            async with asyncio.timeout(self._deadline):
                headers = {"Accept": accept, "Content-Type": content_type, **self._api.default_headers}
                if verb == "list":  # to pack a page costs the apiserver more than to send it
                    headers["Accept-Encoding"] = "identity"
                await self._api.update_params_for_auth(headers, [], ["BearerToken"], path, method, None)
                url = self._api.configuration.host + path + (f"?{urlencode(query)}" if query else "")
                response = await self._api.rest_client.request(
                    method, url, headers=headers, body=body, _request_timeout=self._deadline
                )
                status = response.status
                payload = await _body_of(response.response, most, call)
        except TimeoutError as error:
            raise TransientError(f"no answer within {self._deadline:g} s", call=call) from error
        except (aiohttp.ClientError, OSError) as error:
            raise TransientError(f"{type(error).__name__}: {error}", call=call) from error
        finally:
            if self._observer is not None:
                self._observer(verb, resource.plural, status, time.monotonic() - began)
        if status >= 300:
            raise failure(status, response.headers, payload, call)
        return call, payload


def _document(call: str, payload: bytes) -> Object:
    try:
        document = json.loads(payload)
    except ValueError as error:
        raise TransientError("the answer is not JSON; see the logs of the apiserver and of proxies",
                             call=call) from error
    if not isinstance(document, dict):
        raise UnexpectedError("the answer is JSON, but no object", call=call)
    return document


def _page(call: str, payload: bytes, number: int, known: KnownPages | None) -> Object:
    """The page number ``number`` of a list; without its items where it is ``known``."""
    begin = payload.find(ITEMS) if known is not None else -1
    if known is None or begin < 0:
        return _document(call, payload)
    # Before the items stand the version of the list and a token, which never stay the same.
    content = hashlib.blake2b(memoryview(payload)[begin:], digest_size=16).digest()
    if known.as_before(number, content):
        return _document(call, payload[:begin] + ITEMS + b"]}")
    page = _document(call, payload)
    known.parsed(number, content, page.get("items") or [])
    return page


def _version_of(raw: Object) -> str:
    return str((raw.get("metadata") or {}).get("resourceVersion") or "")


async def _body_of(answer: aiohttp.ClientResponse, most: int, call: str) -> bytes:
    """Raises :class:`TooLargeError` once it has more than ``most`` bytes; the connection is closed then."""
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > most:
            answer.close()
            raise TooLargeError(f"the answer has more than {most} bytes", call=call, status=answer.status)
    return bytes(body)
