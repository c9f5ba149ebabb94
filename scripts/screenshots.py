"""The screenshots of the documents, of a report and of a page for auditors: `python -m scripts.screenshots`.

A Chromium takes them. Look at them before they are committed, and at the same pages in dark and on a phone, which
`--directory DIR` writes as well.
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from retention.api.warehouse import Warehouse
from scripts.pictures import PICTURES, example

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DARK = "--blink-settings=preferredColorScheme=0"
SIZES = {"report": (960, 1480), "evidence": (960, 825)}
"""Page → width and height of its screenshot in the documents, pixels."""
HOME = Path(tempfile.gettempdir(), "lake")
"""The warehouse, whose location the pages show."""
PHONE = (390, 1600)
DESK = (1280, 1600)


def pages(directory: Path) -> dict[str, Path]:
    """The pages, written to files in an empty directory."""
    warehouse = example(HOME)
    report, evidence = directory / "report.html", directory / "evidence.html"
    warehouse.report().save_html(report)
    evidence.write_text(_evidence(warehouse), encoding="utf-8")
    return {"report": report, "evidence": evidence}


def _evidence(warehouse: Warehouse) -> str:
    words = ["--warehouse", warehouse.location, "history", "export", "FLIGHTS", "--format", "html"]
    command = [str(Path(sys.executable).with_name("retention")), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def screenshot(browser: str, page: Path, size: tuple[int, int], *options: str) -> Image.Image:
    """The top of a page in a window of a size."""
    width, height = size
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch, "shot.png")
        fixed = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
        window = (f"--window-size={width},{height}", f"--screenshot={target}")
        command = [browser, *fixed, *window, *options, page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, cwd=scratch)
        return Image.open(io.BytesIO(target.read_bytes())).convert("RGB")


def main() -> int:
    """Take the screenshots; 1 if there is no Chromium."""
    parser = argparse.ArgumentParser(prog="python -m scripts.screenshots", description=__doc__)
    parser.add_argument("--directory", type=Path, help="for the pages and the other screenshots")
    chosen = parser.parse_args().directory
    browser = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if browser is None:
        print("screenshots: there is no Chromium on this machine; install one, then run this again")
        return 1
    HOME.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        for name, page in pages(Path(scratch)).items():
            shot = screenshot(browser, page, SIZES[name])
            shot.quantize(64).save(PICTURES / f"{name}.png", optimize=True)
            if chosen is not None:
                chosen.mkdir(parents=True, exist_ok=True)
                shutil.copy(page, chosen)
                for end, size, options in (
                    ("desk", DESK, ()),
                    ("phone", PHONE, ()),
                    ("desk-dark", DESK, (DARK,)),
                    ("phone-dark", PHONE, (DARK,)),
                ):
                    screenshot(browser, page, size, *options).save(chosen / f"{name}-{end}.png")
    shutil.rmtree(HOME)
    return 0


if __name__ == "__main__":
    sys.exit(main())
