"""What a Containerfile says about its stages: parents, inputs, arguments. Text in, data out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_ARGUMENT = re.compile(r"\$\{?(\w+)\}?")


class ContainerfileError(ValueError):
    """A Containerfile that this reader does not follow; the message names the line."""


@dataclass(frozen=True)
class Stage:
    """One ``FROM … AS name`` and what follows it.

    Attributes:
        parent: the stage or image that it starts from.
        instructions: its instructions, comments and line breaks taken out.
        inputs: paths of the build context that it copies.
        stages: other stages that it copies from or mounts.
        arguments: build arguments that it declares.
    """

    name: str
    parent: str
    instructions: tuple[str, ...]
    inputs: tuple[str, ...]
    stages: tuple[str, ...]
    arguments: tuple[str, ...]


def parse(text: str, arguments: Mapping[str, str]) -> dict[str, Stage]:
    """The stages of a Containerfile by name.

    ``arguments`` override the defaults of arguments declared above the first ``FROM``, and are put into ``FROM`` lines.

    Raises:
        ContainerfileError: a stage has no name, an argument of a ``FROM`` no value, or a path of the context is bind
            mounted (builders do not agree on when that makes a layer stale).
    """
    values: dict[str, str] = {}
    bodies: dict[str, tuple[str, list[str]]] = {}
    body: list[str] | None = None
    for instruction in instructions(text):
        keyword, _, rest = instruction.partition(" ")
        if keyword == "FROM":
            image, _, name = rest.partition(" AS ")
            if not name:
                raise ContainerfileError(f"'{instruction}': name the stage, as in FROM {image} AS name")
            body = []
            bodies[name] = (_substitute(image, values), body)
        elif body is not None:
            body.append(instruction)
        elif keyword == "ARG":
            argument, _, default = rest.partition("=")
            values[argument] = arguments.get(argument, default)
        else:
            raise ContainerfileError(f"'{instruction}': only ARG may stand above the first FROM")
    return {name: _stage(name, parent, lines) for name, (parent, lines) in bodies.items()}


def only(text: str, arguments: Mapping[str, str], target: str) -> str:
    """The Containerfile without the stages that ``target`` does not need."""
    stages = parse(text, arguments)
    needed: set[str] = set()
    waiting = [target]
    while waiting:
        name = waiting.pop()
        if name in stages and name not in needed:
            needed.add(name)
            waiting += [stages[name].parent, *stages[name].stages]
    kept, keep = [], True
    for line in text.splitlines(keepends=True):
        if line.startswith("FROM "):
            keep = line.rpartition(" AS ")[2].strip() in needed
        if keep:
            kept.append(line)
    return "".join(kept)


def instructions(text: str) -> Iterator[str]:
    """Instructions of a Containerfile, one string each: comments dropped, continued lines joined."""
    joined: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        joined.append(stripped.removesuffix("\\").rstrip())
        if not stripped.endswith("\\"):
            yield " ".join(joined)
            joined = []
    if joined:
        yield " ".join(joined)


def _stage(name: str, parent: str, lines: list[str]) -> Stage:
    inputs: list[str] = []
    stages: list[str] = []
    arguments: list[str] = []
    for line in lines:
        keyword, _, rest = line.partition(" ")
        if keyword in ("COPY", "ADD"):
            words = shlex.split(rest)
            options = [word for word in words if word.startswith("--")]
            origin = [option.partition("=")[2] for option in options if option.startswith("--from=")]
            stages += origin
            if not origin:
                inputs += [word for word in words if not word.startswith("--")][:-1]
        elif keyword == "RUN":
            stages += _bind_mounts(line)
        elif keyword == "ARG":
            arguments.append(rest.partition("=")[0])
    return Stage(name, parent, tuple(lines), tuple(inputs), tuple(stages), tuple(arguments))


def _bind_mounts(line: str) -> Iterator[str]:
    for mount in re.findall(r"--mount=(\S+)", line):
        options = dict(pair.partition("=")[::2] for pair in mount.split(","))
        if options.get("type", "bind") != "bind":
            continue
        if "from" not in options:
            raise ContainerfileError(f"'--mount={mount}': COPY from the build context, do not mount it")
        yield options["from"]


def _substitute(image: str, values: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise ContainerfileError(f"'FROM {image}': declare {match[1]} with ARG above the first FROM")
        return values[match[1]]

    return _ARGUMENT.sub(value, image)
