"""What a user lists beside a language model's source: folders of weights, each by a name, which are fetched and checked
like the source before a server is started."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from enginewright_builder.contract import BuildRequest, CheckpointRequest
from enginewright_builder.errors import UserError
from enginewright_builder.sources.base import FetchContext
from enginewright_builder.sources.causal import Causal, locate_causal
from enginewright_builder.sources.fetching import fetch
from enginewright_builder.sources.signature import asked_for

# The CRD has the same pattern. A hand-over has a folder for each name.
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SOURCE, _DIGEST = "spec.source.uri", "spec.source.digest"


@dataclass(frozen=True, kw_only=True)
class Found:
    """``digest`` is of all its files."""

    model: Causal
    digest: str


@dataclass(frozen=True, kw_only=True)
class Listing:
    """``word`` is what one of the list is called, ``most`` how many there may be, ``such_as`` a name for one,
    ``place`` the folder of the scratch volume that has one of each name. ``check`` raises :class:`UserError` for one
    that does not fit the source; it gets the field of its place."""

    field: str
    word: str
    most: int
    such_as: str
    place: str
    check: Callable[[Causal, CheckpointRequest, str], None]

    def resolve(self, request: BuildRequest, listed: Sequence[CheckpointRequest],
                scratch: Path) -> Mapping[str, Found]:
        """By their names, in the order of the request. Raises as a source does, with the field of the list, and
        :class:`UserError` ``RequestInvalid``. Where the request asks for a signature, each needs one."""
        self._check_names(listed)
        return {one.name: self._resolve(request, one, f"{self.field}[{number}]", scratch)
                for number, one in enumerate(listed)}

    def _check_names(self, listed: Sequence[CheckpointRequest]) -> None:
        if len(listed) > self.most:
            raise UserError("RequestInvalid", f"{len(listed)} {self.word}s are too many", field=self.field,
                            value=len(listed), remedy=f"list {self.most} at most")
        for number, one in enumerate(listed):
            field = f"{self.field}[{number}].name"
            if not _NAME.fullmatch(one.name):
                raise UserError("RequestInvalid", f"{one.name!r} cannot name a {self.word}", field=field,
                                value=one.name, remedy="write 1 to 63 lower-case letters, digits and '-', such as "
                                f"{self.such_as}")
            if one.name in {other.name for other in listed[:number]}:
                raise UserError("RequestInvalid", f"two {self.word}s have the name {one.name}", field=field,
                                value=one.name, remedy="give each a name of its own")

    def _resolve(self, request: BuildRequest, one: CheckpointRequest, place: str, scratch: Path) -> Found:
        field = f"{place}.uri"
        path, digest = fetch(one.uri, FetchContext(mounts=request.mounts, scratch=scratch / self.place / one.name,
                                                   field=field, digest=one.digest,
                                                   check=asked_for(request.signature)))
        if not path.is_dir():
            raise UserError("FormatUnknown", f"the {self.word} is a file, and a language model is a folder",
                            field=field, value=one.uri, remedy="give the folder that save_pretrained writes")
        try:
            model = locate_causal(path)
        except UserError as error:  # what looks at a source names the source's field
            error.message = f"{self.word} {one.name}: {error.message}"
            error.field = field if error.field == _SOURCE else error.field
            error.remedy = error.remedy.replace(_DIGEST, f"{place}.digest")
            raise
        self.check(model, one, field)
        return Found(model=model, digest=digest)
