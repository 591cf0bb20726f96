"""The count as a page: by source, by task, and each model that is not served with the word for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tables import head

Row = dict[str, Any]
_HEAD = """# Models that nothing was written for

Written by `make model-count`; each model's outcome is in `model-count.json`.

Each model has random weights and a small configuration, and no architecture in the list stood anywhere in this
repository when the list was written. A model is made and asked by its own framework, with two samples where it takes
more than one. Then the builder's command runs as a user runs it, on the CPU, without data. The source itself may ship
where no candidate is faster in the time that there is, as speed says nothing of such small models:

`enginewright-build --model SOURCE --accelerator cpu --budget-seconds 30 --max-batch-size 8 --fallback source`

**Served** is what the build published: it compared the engine with the source, and Triton's answers with the engine's.
Where the documents, the source's kind or a refusal ask for it, `--interface` states the inputs (`stated` in the file).
Models of the list that were not counted yet are not in the file, and what was served before was not always built again.
"""


def page(result: dict[str, Any]) -> str:
    parts = [_HEAD, f"On {result['hardware']['cpu']}, {result['hardware']['cores']} cores, with "
                    + ", ".join(f"{name} {version}" for name, version in result["versions"].items()) + ".\n"]
    counts = _counts(result)
    parts += [result["note"] + "\n"] if "note" in result else []
    parts += ["## Counts\n", _table(counts, "source"), "## By task\n", _table(counts, "task")]
    for label, rows in counts.items():
        left = [row for row in rows if row["outcome"] != "served"]
        lines = [f"| {row['name']} | {row['outcome']}{_reason(row)} | {_cell(row.get('message', ''))} |"
                 for row in left]
        parts.append("\n".join([f"## Not served, {_WORDS[label]}\n", *head("model", "outcome", "message"), *lines, ""]))
    return "\n".join(parts)


def _counts(result: dict[str, Any]) -> dict[str, Sequence[Row]]:
    """Rows by label. What was not built again since stays as it was before."""
    before, since = result.get("before", []), result.get("after", [])
    now = list({row["name"]: row for row in (*before, *since)}.values())
    return {"before": before, "after": now} if before and since else {"after": now} if since else {"before": before}


_WORDS = {"before": "before the builder was mended for any of them", "after": "since"}


def _table(counts: dict[str, Sequence[Row]], column: str) -> str:
    """Served, refused and failed of all, by ``column``."""
    names = sorted({row[column] for rows in counts.values() for row in rows})
    lines = [*head("", *(_WORDS[label] for label in counts))]
    for name in (*names, "all"):
        told = (_told([row for row in rows if name in (row[column], "all")]) for rows in counts.values())
        lines.append(f"| {name} |" + "".join(f" {one} |" for one in told))
    return "\n".join(lines) + "\n"


def _told(rows: Sequence[Row]) -> str:
    found = Counter(row["outcome"] for row in rows)
    others = (f", {found[name]} {name}" for name in sorted(found) if name != "served")
    return f"{found['served']} of {len(rows)} served" + "".join(others)


def _reason(row: Row) -> str:
    return f": `{row['reason']}`" if row.get("reason") else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")[:300]
