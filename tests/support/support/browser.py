"""A page as a browser shows it: headless Chromium on a file, with a profile of its own and nothing fetched."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

# As Debian and others call it.
NAMES = ("chromium", "chromium-browser", "google-chrome")
# Without a sandbox, since tests run as root in containers, and without the network: a page needs none.
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage",
           "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--virtual-time-budget=20000")


@dataclass(frozen=True)
class Shown:
    """``dom`` after its scripts ran; ``console`` has what they, and the browser about them, wrote there."""

    dom: str
    console: tuple[str, ...]


def show(page: Path, profile: Path, *options: str) -> Shown:
    """Raises ``AssertionError`` without a browser: tests that need one do not pass without."""
    done = _run(page, profile, *options, "--dump-dom")
    return Shown(done.stdout, tuple(line for line in done.stderr.splitlines() if ":CONSOLE:" in line))


def sheets(page: Path, profile: Path) -> int:
    """How many sheets of paper it takes when it is printed."""
    pdf = profile.with_suffix(".pdf")
    _run(page, profile, "--no-pdf-header-footer", f"--print-to-pdf={pdf}")
    (count,) = re.findall(rb"/Type\s*/Pages\b[^>]*?/Count (\d+)", pdf.read_bytes(), re.DOTALL)
    return int(count)


def _run(page: Path, profile: Path, *options: str) -> subprocess.CompletedProcess[str]:
    browser = next(filter(None, map(shutil.which, NAMES)), None)
    assert browser, f"none of {', '.join(NAMES)} is here: run hack/bin-deps.sh --tests"
    command = [browser, *OPTIONS, f"--user-data-dir={profile}", *options, page.resolve().as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)


def chart(shown: Shown, name: str) -> str:
    """The drawing of one of the report's charts; empty where it is not drawn. (The library's own script has an SVG.)"""
    _, place, rest = shown.dom.partition(f'data-chart="{name}"')
    assert place, f"the page has no place for chart {name}"
    attributes, _, inside = rest.partition(">")
    drawn, _, _ = re.split(r"data-chart=|</section>", inside, maxsplit=1)[0].partition("</svg>")
    return drawn if "<svg" in drawn and "hidden" not in attributes else ""
