"""A topic of two partitions under a manual clock, and its content."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from retention.api.topic import Topic
from retention.api.warehouse import Warehouse, open_warehouse

START = 1_800_000_000_000_000_000
SECOND = 10**9
NAME = "clicks"


@dataclass
class Clock:
    """A manual clock."""

    now_ns: int = START

    def __call__(self) -> int:
        return self.now_ns


@dataclass
class World:
    """A warehouse with one topic."""

    folder: Path
    format: str
    said: dict[str, Any] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.configure()

    def configure(self, **more: Any) -> None:
        """Write the configuration, with these additional keys of the topic."""
        self.said = {"name": NAME, "partitions": 2, "segment_size": "1MiB"} | self.said | more
        config = {"defaults": {"format": self.format}, "topics": [self.said]}
        (self.folder / "retention.yaml").write_text(json.dumps(config), encoding="utf-8")

    @property
    def warehouse(self) -> Warehouse:
        """The warehouse, opened anew."""
        return open_warehouse(self.folder / "retention.yaml", engine="local", clock=self.clock)

    @property
    def topic(self) -> Topic:
        """The topic, opened anew."""
        return self.warehouse.topic(NAME)

    def rows(self) -> list[dict[str, Any]]:
        """The messages of the topic."""
        return [row for table in self.topic.messages() for row in table.to_pylist()]

    def places(self) -> list[tuple[int, int, int, bytes]]:
        """Partition, segment, offset and payload of each message."""
        return [
            (row["partition"], row["segment"], row["seq"], row["payload"]) for row in self.rows()
        ]

    def open_base(self) -> dict[int, int]:
        """Partition → the base of its active segment."""
        return dict(self.topic.opened.store.snapshot().counters.open_base)


def line(data: str = "x", **said: Any) -> str:
    """A line to publish."""
    return json.dumps({"data": data} | said)
