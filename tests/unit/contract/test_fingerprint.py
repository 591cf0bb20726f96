"""No wrong hit: whatever differs in what was asked for has another fingerprint, whoever asks and from wherever.

Fields are found by their types, so that one added to the contract is tested without an edit here: it must change the
fingerprint unless it is named in ``EXCLUDED``.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from enginewright_builder.contract import BuildRequest, canonical, to_plain

# What may differ between two requests for the very same engine, and why.
EXCLUDED = {
    "model_name": "who asks",
    "source.uri": "the digest tells the content",
    "engine.calibration.uri": "the digest tells the content",
    "accuracy.evaluation.uri": "the digest tells the content",
    "generate.checkpoints.uri": "the digest tells the content",
    "generate.drafts.uri": "the digest tells the content",
    "engine.build_budget_seconds": "how long is not what",
    "signature.key_path": "who signed it, not what it is",
    "signature.key_name": "as above",
    "signature.method": "as above",
    "signature.path": "as above",
    "store_path": "where it is kept",
    "bucket.uri": "where it is kept",
    "bucket.check_digests": "how it is looked at",
    "signing_keys": "where the keys of the store are",
    "steps_socket": "where functions run in the build",
    "captures.namespace": "where captures are looked up; the digest tells the content",
    "captures.keys": "where the keys of captures are",
    "mounts": "where it is found",
    "version": "of the document, not of the engine",
}
MUTATIONS = 1000
Path = tuple[str | int, ...]


def field_of(path: Path) -> str:
    return ".".join(part for part in path if isinstance(part, str))


def inner(hint: Any) -> Any:
    """``X`` of ``X | None``."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        known = [option for option in typing.get_args(hint) if option is not type(None)]
        return known[0] if len(known) == 1 else hint
    return hint


def hints_of(kind: Any) -> dict[str, Any]:
    return _hints(kind)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def made(hint: Any, dice: random.Random, name: str = "") -> Any:
    """Any value of the type, whole in every field."""
    hint = inner(hint)
    if dataclasses.is_dataclass(hint):
        hints = hints_of(hint)
        return hint(**{f.name: made(hints[f.name], dice, f.name) for f in dataclasses.fields(hint)})  # type: ignore[operator]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return dice.choice(arguments)
    if origin is tuple:
        return tuple(made(arguments[0], dice, name) for _ in range(dice.randint(1, 3)))
    if origin is not None and issubclass(origin, Mapping):
        return {made(arguments[0], dice): made(arguments[1], dice)}
    if origin in (typing.Union, types.UnionType):
        return made(dice.choice(arguments), dice, name)
    return atom(hint, dice, name)


def atom(kind: type, dice: random.Random, name: str) -> Any:
    word = "".join(dice.choices("abcdefghij0123456789:,\"'{}[] ä", k=dice.randint(1, 8)))
    if name == "digest":
        return f"sha256:{dice.getrandbits(256):064x}"
    return {str: word, int: dice.randint(-1, 1 << 40), float: dice.uniform(0, 100), bool: dice.random() < 0.5}[kind]


def leaves(kind: Any, value: Any, path: Path = ()) -> Iterator[tuple[Path, Any, Any]]:
    """Path, type and value of every field that holds no further fields; of a tuple also its elements'."""
    if dataclasses.is_dataclass(value):
        hints = hints_of(type(value))
        for field in dataclasses.fields(value):
            yield from leaves(inner(hints[field.name]), getattr(value, field.name), (*path, field.name))
        return
    yield path, kind, value
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            if dataclasses.is_dataclass(item):
                yield from leaves(None, item, (*path, index))


def other(kind: Any, value: Any, path: Path, dice: random.Random) -> Any:
    """Another value of the same type: for a tuple an element more, one less, or another one."""
    while True:
        found = _changed(value, kind, dice) if isinstance(value, tuple) else made(kind, dice, str(path[-1]))
        if canonical(to_plain(found)) != canonical(to_plain(value)):
            return found


def _changed(value: tuple[Any, ...], kind: Any, dice: random.Random) -> tuple[Any, ...]:
    more = made(kind, dice)
    if not value:
        return typing.cast(tuple[Any, ...], more)
    at = dice.randrange(len(value))
    return dice.choice([value + more, value[:-1], (*value[:at], more[0], *value[at + 1:]), value[::-1]])


def put(holder: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    first, rest = path[0], path[1:]
    if isinstance(first, int):
        return (*holder[:first], put(holder[first], rest, value), *holder[first + 1:])
    return dataclasses.replace(holder, **{first: put(getattr(holder, first), rest, value)})


def request(seed: str) -> tuple[BuildRequest, random.Random]:
    dice = random.Random(seed)
    # As most ask; who may get the source for want of time has a budget that counts, see below.
    return put(made(BuildRequest, dice), ("engine", "fallback"), "none"), dice


FIELDS = sorted({field_of(path) for path, _, _ in leaves(BuildRequest, request("fields")[0])})


def test_the_excluded_fields_exist() -> None:
    assert set(EXCLUDED) - set(FIELDS) == set()


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_that_matters_changes_the_fingerprint_and_no_other_does(name: str) -> None:
    basis, dice = request(name)
    for path, kind, value in leaves(BuildRequest, basis):
        if field_of(path) == name:
            changed = put(basis, path, other(kind, value, path, dice))
            assert (changed.fingerprint() == basis.fingerprint()) is (name in EXCLUDED), f"{name} at {path}"


@pytest.mark.parametrize("name", ["interface", "engine.calibration", "accuracy.evaluation"])
def test_what_is_absent_is_not_what_is_empty(name: str) -> None:
    basis, _ = request(name)
    assert put(basis, tuple(name.split(".")), None).fingerprint() != basis.fingerprint()


def test_more_time_is_another_wish_where_the_source_may_be_served_for_want_of_it() -> None:
    """Else a spec that was given more time would find the source in the store for ever."""
    basis = put(request("time")[0], ("engine", "fallback"), "source")
    longer = put(basis, ("engine", "build_budget_seconds"), basis.engine.build_budget_seconds + 1)
    assert longer.fingerprint() != basis.fingerprint()


@pytest.mark.study
def test_a_thousand_mutations_hit_nothing_wrong() -> None:
    seen: dict[str, str] = {}
    for number in range(MUTATIONS):
        basis, dice = request(f"mutation {number}")
        changed, touched = basis, set()
        for _ in range(dice.randint(1, 4)):
            # Looked up anew: an earlier change may have shortened a list.
            path, kind, value = dice.choice(list(leaves(BuildRequest, changed)))
            changed = put(changed, path, other(kind, value, path, dice))
            touched.add(field_of(path))
        for one in (basis, changed):
            asked = content(one)
            assert seen.setdefault(one.fingerprint(), asked) == asked, f"wrong hit after a change of {touched}"
        if touched <= set(EXCLUDED):
            assert changed.fingerprint() == basis.fingerprint(), f"a miss for nothing: {touched}"
    assert len(seen) > MUTATIONS


def told_apart(value: Any) -> bool:
    """Whether it is a list of records: fields of these may be excluded, and each is a leaf of its own."""
    return isinstance(value, tuple) and any(map(dataclasses.is_dataclass, value))


def content(one: BuildRequest) -> str:
    """All that was asked for, told apart from the code under test."""
    plain = {field_path: value for path, _, value in leaves(BuildRequest, one)
             if (field_path := ".".join(map(str, path))) and field_of(path) not in EXCLUDED and not told_apart(value)}
    return canonical(to_plain(plain))
