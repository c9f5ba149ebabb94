"""The how-to page on live servers, executed against a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.nats_oracle import server
from tests.support.pages import executed, write_files

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "sync-from-a-live-server.md"
URL = "nats://localhost:4222"

pytestmark = pytest.mark.live


def test_the_page_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with server() as nats:
        nats.request("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
        nats.publish([(f"orders.{name}", b"placed", None) for name in ("ada", "bob", "eve")])
        assert URL in text
        write_files(text.replace(URL, nats.url), tmp_path)
        assert executed(PAGE, tmp_path) == text
