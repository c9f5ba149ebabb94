"""The how-to page on topics of live Iggy servers, executed against a server's recorded answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from retention.iggy.settings import IggySettings
from retention.ingest.sync.iggy import session
from tests.support.iggy_server import identifier
from tests.support.pages import executed, write_files
from tests.support.recorded_topic import TOPIC, RecordedServer

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "sync-an-iggy-topic.md"


@dataclass
class Renamed:
    """The recorded server, which calls the topic `clicks`."""

    recorded: RecordedServer = field(default_factory=RecordedServer)
    server: str = "localhost:8090"

    def request(self, code: int, body: bytes) -> bytes:
        return self.recorded.request(code, body.replace(identifier("clicks"), identifier(TOPIC)))


def test_the_page_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def connected(settings: IggySettings, patience_s: float, **_: object) -> Iterator[Renamed]:
        assert (settings.address, settings.username, patience_s) == ("localhost:8090", "iggy", 30)
        yield Renamed()

    text = PAGE.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IGGY_USERNAME", "iggy")
    monkeypatch.setenv("IGGY_PASSWORD", "iggy")
    monkeypatch.setattr(session, "Connection", connected)
    write_files(text, tmp_path)
    assert executed(PAGE, tmp_path) == text
