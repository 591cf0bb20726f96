"""``kubectl_complete-optimisedmodel``: what kubectl's shell completion asks for the words after the plugin's name.

kubectl gives the words so far, the last of them unfinished, and wants a suggestion a line and then a colon with a
directive of cobra's (kubernetes.io, "Extend kubectl with plugins"; github.com/spf13/cobra, completions).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

from enginewright.clients.credentials import current_namespace, load_configuration
from enginewright.clients.errors import ClientError
from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import OPTIMISED_MODEL
from enginewright.plugin import wishes
from enginewright.plugin.main import parser
from enginewright_builder.contract import printable

FILES: Final = 0
NO_FILES: Final = 4
TAKE_FILES: Final = frozenset({"validate", "diff"})
TAKE_REVISION: Final[dict[str, Callable[[Any], list[str]]]] = {
    "rollback": wishes.revisions, "export": wishes.live, "report": wishes.live}
# A shell waits for it.
PATIENCE: Final = 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments) or [""]
    found, directive = suggest(words)
    print(printable("\n".join([*(one for one in found if one.startswith(words[-1])), f":{directive}"])))
    return 0


def suggest(words: Sequence[str]) -> tuple[list[str], int]:
    """For the last of ``words``, and the directive."""
    verbs = _verbs()
    if len(words) == 1:
        return sorted(verbs), NO_FILES
    verb = verbs.get(words[0])
    if verb is None:
        return [], NO_FILES
    if words[-1].startswith("-"):
        return sorted(name for name in verb._option_string_actions if name.startswith("--")), NO_FILES
    if words[0] in TAKE_FILES or words[-2] in ("--kubeconfig", "-f", "--file"):
        return [], FILES
    if choices := getattr(verb._option_string_actions.get(words[-2]), "choices", None):
        return list(choices), NO_FILES
    given = _positional(verb, words[1:-1])
    if given is None or (given and words[0] not in TAKE_REVISION) or len(given) > 1 or words[0] == "top":
        return [], NO_FILES
    where = _value(words, "--kubeconfig"), _value(words, "--context")
    revisions = TAKE_REVISION.get(words[0])
    return asyncio.run(_of_the_cluster(where, _value(words, "-n", "--namespace"), given, revisions)), NO_FILES


def _verbs() -> dict[str, argparse.ArgumentParser]:
    (action,) = (one for one in parser()._actions if isinstance(one, argparse._SubParsersAction))
    return dict(action.choices)


def _positional(verb: argparse.ArgumentParser, words: Sequence[str]) -> list[str] | None:
    """Those of the finished words that are no options and no values of options; None where an option wants a value."""
    found: list[str] = []
    left = iter(words)
    for word in left:
        option: Any = verb._option_string_actions.get(word)
        if option is None:
            if not word.startswith("-"):
                found.append(word)
        elif option.nargs != 0 and next(left, None) is None:
            return None
    return found


def _value(words: Sequence[str], *names: str) -> str | None:
    return next((after for word, after in pairwise(words) if word in names), None)


async def _of_the_cluster(where: tuple[str | None, str | None], namespace: str | None, given: Sequence[str],
                          revisions: Callable[[Any], list[str]] | None) -> list[str]:
    """``where`` is kubeconfig and context. Names of objects, or the revisions of the one that is given. Nothing where
    the cluster does not answer."""
    try:
        namespace = namespace or current_namespace(*where)
        async with KubeClient(await load_configuration(*where), deadline=PATIENCE) as client:
            if given and revisions:
                return revisions(await client.get(OPTIMISED_MODEL, namespace, given[0].rpartition("/")[2]))
            return sorted(item["metadata"]["name"] for item in await client.list_metadata(OPTIMISED_MODEL, namespace))
    except ClientError:
        return []


if __name__ == "__main__":
    sys.exit(main())
