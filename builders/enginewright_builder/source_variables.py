"""The source's credentials in a Job's environment: behind a prefix, so that no entry of a Secret is a variable by which
the loader, Python or NVIDIA's runtime would choose what runs, and on which device. Standard library only."""

from __future__ import annotations

from collections.abc import MutableMapping

from enginewright_builder.contract import SOURCE_ENTRIES, SOURCE_VARIABLES


def take_source_variables(environ: MutableMapping[str, str]) -> None:
    """Gives those that sources read their own names, and removes all that have the prefix. One that is there by its own
    name stays, as one of a pod's ``env`` does beside its ``envFrom``."""
    for name in [name for name in environ if name.startswith(SOURCE_VARIABLES)]:
        value, entry = environ.pop(name), name.removeprefix(SOURCE_VARIABLES)
        if _is_read(entry):
            environ.setdefault(entry, value)


def _is_read(entry: str) -> bool:
    return any(entry.startswith(one[:-1]) if one.endswith("*") else entry == one for one in SOURCE_ENTRIES)
