"""``make pictures``: what the README shows of a real run, out of build/demo, which ``make demo`` leaves.

The report as a browser draws its first screen, and what the plugin's ``explain`` says of the model that serves.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "build" / "demo"
SHOWN = ROOT / "docs" / "img"
README = ROOT / "README.md"
# As Debian and others call it.
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1180, 1260
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage",
           "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000")
# The block of the README behind this command.
COMMAND = "$ kubectl optimisedmodel explain minilm\n"


def main() -> int:
    report, explanation = RUN / "report.html", RUN / "explain.txt"
    if not (report.exists() and explanation.exists()):
        print(f"{RUN} has no report and explanation: run make demo first", file=sys.stderr)
        return 1
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"none of {', '.join(BROWSERS)} is here: run hack/bin-deps.sh --tests", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run([browser, *OPTIONS, f"--user-data-dir={profile}", f"--window-size={WIDTH},{HEIGHT}",
                        f"--screenshot={SHOWN / 'report.png'}", report.as_uri()], check=True, timeout=240,
                       stderr=subprocess.DEVNULL)
    shutil.copy(explanation, SHOWN / "explain.txt")
    README.write_text(with_explanation(README.read_text(), explanation.read_text()))
    print(f"{SHOWN / 'report.png'}\n{SHOWN / 'explain.txt'}\n{README}")
    return 0


def with_explanation(readme: str, explanation: str) -> str:
    """``readme`` with ``explanation`` in the block behind COMMAND. Raises ValueError where there is none."""
    before, command, behind = readme.partition(COMMAND)
    if not command:
        raise ValueError(f"README.md has no block that begins with {COMMAND.strip()!r}")
    _, end, rest = behind.partition("```\n")
    return f"{before}{command}{explanation}{end}{rest}"


if __name__ == "__main__":
    sys.exit(main())
