"""For MkDocs: pages at the repository's root and the examples become part of the site, and links between files of the
repository become links between pages. So one text is right on a code host and here."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
# Files outside docs/, and where they go in the site.
EXTRA = {"README.md": "index.md", "LICENSE": "LICENSE.txt", **{name: name for name in (
    "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "GOVERNANCE.md", "SECURITY.md")}}
FILES = ("charts/enginewright/README.md", "charts/enginewright/templates/_helpers.tpl")
FOLDERS = ("examples", "charts/kustomize/example", "charts/enginewright/files")
ITEM = re.compile(r"(?:[-*]|\d\.) (?=\S)")
LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)]*)?\))")


def placed() -> dict[str, str]:
    """Repository path → site path, of all that lies outside docs/."""
    found = dict(EXTRA)
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file():
                name = path.relative_to(ROOT).as_posix()
                found[name] = name
    return found | {name: name for name in FILES}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, target in placed().items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    if page.file.src_uri == "adr/README.md":
        markdown += decisions()
    return indented(rewritten(markdown, page.file.src_uri))


def decisions() -> str:
    """The list that a code host shows as a folder."""
    paths = sorted((ROOT / "docs" / "adr").glob("0*.md"))
    lines = [f"* [{path.read_text().partition(chr(10))[0].removeprefix('# ')}]({path.name})\n" for path in paths]
    return "\n## All of them\n\n" + "".join(lines)


def indented(markdown: str) -> str:
    """``markdown`` with four spaces before what belongs to an item of a list, as MkDocs needs them: code hosts take two
    or three. Else a block of code ends the list, and the next item has number 1 again."""
    lines, width, fenced = [], 0, False
    for line in markdown.split("\n"):
        if line.startswith("```"):
            fenced, width = not fenced, 0
        elif not fenced and (item := ITEM.match(line)):
            width = len(item[0])
        elif line and not line.startswith(" "):
            width = 0
        inside = width and line.startswith(" " * width)
        lines.append(" " * (4 - width) + line if inside else line)
    return "\n".join(lines)


def rewritten(markdown: str, page: str) -> str:
    """``markdown`` of the site's ``page``, with links to files of the repository made links to files of the site. What
    leads nowhere is left, for MkDocs to refuse."""
    moved = placed()
    origin = {target: name for name, target in moved.items()}
    here = posixpath.dirname(origin.get(page, f"docs/{page}"))

    def link(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(here, match[2]))
        target = path.removeprefix("docs/") if path.startswith("docs/") else moved.get(path)
        if target is None and f"{path}/README.md" in moved:
            target = f"{path}/README.md"
        if target is None:
            return match[0]
        return f"{match[1]}{posixpath.relpath(target, posixpath.dirname(page) or '.')}{match[3]}"

    return LINK.sub(link, markdown)
