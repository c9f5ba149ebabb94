"""The pages with a sync from a live server, executed against a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.nats_oracle import server
from tests.support.pages import executed, write_files

DOCS = Path(__file__).parents[2] / "docs"
URL = "nats://localhost:4222"

pytestmark = pytest.mark.live


@pytest.mark.parametrize(
    ("page", "stream", "subjects"),
    [
        ("how-to/sync-from-a-live-server.md", "ORDERS", ("ada", "bob", "eve")),
        ("semantics/replay-mode.md", "PRICES", ("a", "b", "b", "b")),
    ],
)
def test_the_page_prints_what_it_says(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    page: str,
    stream: str,
    subjects: tuple[str, ...],
) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with server() as nats:
        first = stream.lower()
        nats.request(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{first}.>"]})
        nats.publish([(f"{first}.{name}", b"placed", None) for name in subjects])
        assert URL in text
        write_files(text.replace(URL, nats.url), tmp_path)
        assert executed(DOCS / page, tmp_path) == text
