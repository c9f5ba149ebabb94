"""Write the pages of docs/reference anew."""

from __future__ import annotations

from scripts.reference.pages import PAGES, REFERENCE

if __name__ == "__main__":
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")
