"""Reading from a registry: manifests and blobs by the OCI distribution specification, checked against their digests.

https://github.com/opencontainers/distribution-spec/blob/main/spec.md, and for tokens
https://distribution.github.io/distribution/spec/auth/token/. Whatever a registry says is held against the digest that
was asked for, and credentials go to the registry and to the token service that it names, never to where blobs are
redirected.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar

import httpx

from enginewright_builder.errors import BuilderError, TransientError, UserError, brief
from enginewright_builder.foreign_json import parsed
from enginewright_builder.sources.base import CHUNK_BYTES, Blob, FetchContext
from enginewright_builder.sources.registry_login import Login, login_for
from enginewright_builder.sources.remote import bad_credentials, denied, is_loopback, is_near

ATTEMPTS = 4
MOST_REDIRECTS = 5
# What the specification lets a registry limit manifests to; and of what tells of an error.
MANIFEST_BYTES, ERROR_BYTES = 4 << 20, 64 << 10
PLAIN_HTTP = "REGISTRY_PLAIN_HTTP"
INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
_TIMEOUT = httpx.Timeout(connect=10.0, read=60.0, write=60.0, pool=10.0)
_CHALLENGE = re.compile(r"\b(Basic|Bearer)\b((?:\s*,?\s*[\w-]+=(?:\"[^\"]*\"|[^\s,\"]+))*)", re.IGNORECASE)
_PARAMETER = re.compile(r"([\w-]+)=(?:\"([^\"]*)\"|([^\s,\"]+))")
_REMEDY = ("check the name; for a private repository name a Secret in spec.source.secretRef, of type "
           "kubernetes.io/dockerconfigjson or with REGISTRY_USERNAME and REGISTRY_PASSWORD")
T = TypeVar("T")


class Registry:
    """One repository of one registry. ``pause`` waits between attempts; tests pass their own."""

    def __init__(self, host: str, repository: str, uri: str, context: FetchContext, *,
                 pause: Callable[[float], None] = time.sleep) -> None:
        self.repository, self._uri, self._context, self._pause = repository, uri, context, pause
        self._login: Login | None = login_for(host, repository)
        self._authorization = ""
        self._base = httpx.URL(f"{'http' if _is_plain(host) else 'https'}://{host}")
        try:
            # Bytes as they are stored: a digest is not of what a content encoding makes of them.
            self._client = httpx.Client(timeout=_TIMEOUT, headers={"Accept-Encoding": "identity"})
        except OSError as error:  # of the certificates that it is to trust
            raise bad_credentials(f"SSL_CERT_FILE or SSL_CERT_DIR cannot be used: {brief(error)}",
                                  "name certificates in PEM that are there") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._client.close()

    def manifest(self, reference: str) -> dict[str, Any]:
        """What a tag or digest names."""
        return self._attempted(lambda: self._manifest(reference))

    def blob(self, blob: Blob, target: Path, read: Callable[[int], None]) -> None:
        """To a temporary name. A connection that breaks is taken up where it broke; ``read`` gets the number of bytes
        that came, and of less than none where they are thrown away."""
        partial = target.with_name(f"{target.name}.part")
        try:
            with partial.open("wb") as file:
                received = _Received(blob, file, read)
                self._attempted(lambda: self._receive(received), lambda: received.size)
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)

    def _attempted(self, step: Callable[[], T], reached: Callable[[], int] = lambda: 0) -> T:
        """Attempts that get further than any before do not count."""
        failed, furthest = 0, 0
        while True:
            try:
                return step()
            except (TransientError, httpx.HTTPError, httpx.InvalidURL) as error:
                if reached() > furthest:
                    failed, furthest = 0, reached()
                failed += 1
                if failed == ATTEMPTS and isinstance(error, TransientError):
                    raise
                if failed == ATTEMPTS:
                    raise self._unreachable(brief(error)) from error
                self._pause(0.5 * 2 ** (failed - 1))

    def _manifest(self, reference: str) -> dict[str, Any]:
        with self._get(f"manifests/{reference}", {"Accept": ", ".join((*MANIFESTS, *INDEXES))}) as response:
            if response.status_code == HTTPStatus.NOT_FOUND:
                self._check(response, f"{self.repository} has no {reference}{self._tags()}")
            self._check(response)
            try:
                content = _bounded(response, MANIFEST_BYTES)
            except ValueError as error:
                raise self.corrupt(f"the manifest of {reference} has {error}") from error
            stated = response.headers.get("docker-content-digest", "")
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        for wanted in (reference, stated):
            if wanted.startswith("sha256:") and wanted != digest:
                raise self.corrupt(f"the manifest that the registry gives is not {wanted}")
        try:
            manifest = parsed(content)
        except ValueError as error:
            raise self.corrupt(f"the manifest {digest} is no JSON") from error
        if not isinstance(manifest, dict):
            raise self.corrupt(f"the manifest {digest} is no object")
        return manifest

    def _tags(self) -> str:
        """Some, for a hint; nothing where the registry does not tell."""
        try:
            with self._get("tags/list?n=8", {}) as response:
                found = parsed(_bounded(response, MANIFEST_BYTES)).get("tags") if response.is_success else None
        except (BuilderError, httpx.HTTPError, ValueError, AttributeError):
            return ""
        return f"; it has {', '.join(str(tag)[:128] for tag in found[:8])}" if isinstance(found, list) and found else ""

    def _receive(self, received: _Received) -> None:
        blob = received.blob
        if received.size < blob.size:
            asked = {"Range": f"bytes={received.size}-"} if received.size else {}
            with self._get(f"blobs/{blob.digest}", asked) as response:
                self._check(response, f"the registry has no blob {blob.digest}, which its manifest names")
                if received.size and not _goes_on(response, received.size):
                    received.drop()
                for chunk in response.iter_raw():  # as it comes: what is gathered first is lost with the connection
                    if received.size + len(chunk) > blob.size:
                        raise self.corrupt(f"the blob {blob.digest} is longer than the {blob.size:,} bytes that it "
                                           "should have")
                    received.write(chunk)
            if received.size < blob.size:
                raise self._unreachable(f"got {received.size} of {blob.size} bytes of the blob {blob.digest}")
        if received.digest != blob.digest:
            received.drop()
            if received.dropped > 1:
                raise self.corrupt(f"the blob {blob.digest} has other bytes than its digest is of")
            raise self._unreachable(f"the blob {blob.digest} came with other bytes")

    @contextmanager
    def _get(self, path: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """An answer that is no redirect, with credentials where the registry asks for them."""
        url, asked = self._base.join(f"/v2/{self.repository}/{path}"), False
        for _ in range(MOST_REDIRECTS + 2):
            own = _origin(url) == _origin(self._base)
            authorized = {"Authorization": self._authorization} if own and self._authorization else {}
            response = self._client.send(self._client.build_request("GET", url, headers={**headers, **authorized}),
                                         stream=True)
            try:
                if response.status_code == HTTPStatus.UNAUTHORIZED and own and not asked:
                    asked, self._authorization = True, self._authorize(response)
                elif response.has_redirect_location:
                    url = self._next(url, response.headers["location"])
                else:
                    yield response
                    return
            finally:
                response.close()
        raise self._unreachable("the registry redirects without end")

    def _next(self, url: httpx.URL, location: str) -> httpx.URL:
        following = url.join(location)
        if is_near(following.host) and not is_near(self._base.host):
            raise UserError("SourceUriInvalid", f"{self._uri} is redirected to {following.host}, an address of the "
                            "build Job's own machine", field=self._context.field, value=self._uri,
                            remedy="let the registry redirect to a name of its own")
        if following.scheme != "https" and (following.scheme, url.scheme) != ("http", "http"):
            raise UserError("SourceUriInvalid", f"{self._uri} is redirected to an address that is not encrypted, at "
                            f"{following.host}", field=self._context.field, value=self._uri,
                            remedy="let the registry redirect to https://, or not at all")
        return following

    def _authorize(self, response: httpx.Response) -> str:
        """What the challenge asks for: a token, without a login too; or user and password. Empty where there is
        nothing."""
        challenges = dict[str, dict[str, str]]()
        for scheme, parameters in _CHALLENGE.findall(", ".join(response.headers.get_list("www-authenticate"))):
            found = {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(parameters)}
            challenges.setdefault(scheme.lower(), found)
        if realm := challenges.get("bearer", {}).get("realm"):
            return f"Bearer {self._token(httpx.URL(realm), challenges['bearer'])}"
        return self._login.basic if self._login and "basic" in challenges else ""

    def _token(self, realm: httpx.URL, challenge: Mapping[str, str]) -> str:
        if realm.scheme != "https" and (realm.scheme, self._base.scheme) != ("http", "http"):
            raise UserError("SourceUriInvalid", f"{self._uri}: the registry's token service is not encrypted",
                            field=self._context.field, value=self._uri, remedy="let the registry name one by https://")
        wanted = {"service": challenge.get("service", ""), "client_id": "enginewright",
                  "scope": challenge.get("scope") or f"repository:{self.repository}:pull"}
        headers = {"Authorization": self._login.basic} if self._login else {}
        response = self._client.send(self._client.build_request(
            "GET", realm.copy_merge_params({name: value for name, value in wanted.items() if value}), headers=headers),
            stream=True)
        try:
            self._check(response, "the registry's token service gives no token")
            answer = parsed(_bounded(response, ERROR_BYTES))
            return str(answer.get("token") or answer["access_token"])
        except (ValueError, KeyError, AttributeError) as error:
            raise self._unreachable("the registry's token service gives no token") from error
        finally:
            response.close()

    def _check(self, response: httpx.Response, absent: str = "the registry does not answer as it should") -> None:
        status = response.status_code
        if status in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
            return
        why = f"HTTP {status}{_code(response)}"
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise denied(self._uri, f"is not there, or may not be read: {why}", self._context, _REMEDY)
        if status in _RETRIED or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise self._unreachable(why)
        raise UserError("SourceNotFound", f"{self._uri}: {absent} ({why})", field=self._context.field, value=self._uri,
                        remedy="name a repository and a tag or digest that the registry has")

    def _unreachable(self, why: str) -> TransientError:
        return TransientError("SourceUnreachable", f"{self._uri}: {why}", field=self._context.field, value=self._uri,
                              remedy="check that the registry can be reached from the cluster (one without TLS is "
                                     f"named in {PLAIN_HTTP} of the Secret of spec.source.secretRef)")

    def corrupt(self, why: str) -> UserError:
        return UserError("SourceCorrupt", f"{self._uri}: {why}", field=self._context.field, value=self._uri,
                         remedy="push it again, and look at what stands between the registry and the cluster")


class _Received:
    """What has come of a blob; ``dropped`` counts how often it was thrown away."""

    def __init__(self, blob: Blob, file: BinaryIO, read: Callable[[int], None]) -> None:
        self.blob, self.size, self.dropped = blob, 0, 0
        self._file, self._read, self._sha256 = file, read, hashlib.sha256()

    @property
    def digest(self) -> str:
        return f"sha256:{self._sha256.hexdigest()}"

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self._sha256.update(chunk)
        self.size += len(chunk)
        self._read(len(chunk))

    def drop(self) -> None:
        self._read(-self.size)
        self._file.seek(0)
        self._file.truncate()
        self.size, self.dropped, self._sha256 = 0, self.dropped + 1, hashlib.sha256()


def _goes_on(response: httpx.Response, start: int) -> bool:
    """A server may not know ranges, and then starts from the beginning."""
    return (response.status_code == HTTPStatus.PARTIAL_CONTENT
            and response.headers.get("content-range", "").startswith(f"bytes {start}-"))


def _is_plain(host: str) -> bool:
    """Without TLS: this machine, and who is named so. Registries inside a cluster often have none."""
    name = httpx.URL(f"https://{host}").host
    return is_loopback(name) or host.lower() in re.split(r"[,\s]+", os.environ.get(PLAIN_HTTP, "").lower())


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _bounded(response: httpx.Response, limit: int) -> bytes:
    """Raises ``ValueError`` for more."""
    content = b""
    for chunk in response.iter_raw(CHUNK_BYTES):
        content += chunk
        if len(content) > limit:
            raise ValueError(f"more than {limit} bytes")
    return content


def _code(response: httpx.Response) -> str:
    """The registry's own word for what is wrong."""
    try:
        code = parsed(_bounded(response, ERROR_BYTES))["errors"][0]["code"]
    except (ValueError, LookupError, TypeError, httpx.HTTPError):
        return ""
    return f" {code}" if re.fullmatch(r"\w{1,64}", str(code)) else ""
