"""A warehouse with one stream and its model, subject to the same acts; and expectations of refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from retention.api.stream import Stream
from retention.api.warehouse import Warehouse, open_warehouse
from retention.config.stream import StreamConfig
from retention.core.outcomes import Outcome
from retention.errors import RetentionError
from tests.support.histories.stopped_clock import StoppedClock
from tests.support.histories.stored import SECOND
from tests.support.histories.stream_model import StreamModel
from tests.support.histories.terms import NAME, NEIGHBOUR, Terms

Refusals = tuple[type[RetentionError], ...]
"""Alternative expected errors."""
GRACES = {"0s": 0, "10s": 10, "1m": 60, "10m": 600}
"""Seconds of each `grace` in histories."""


@dataclass
class Actors:
    """A warehouse with one stream, its model, and the clock of both."""

    folder: Path
    terms: Terms
    said: str = ""
    """The last act, in a few words."""
    last_id: int = 0
    beside: dict[int, str] = field(default_factory=dict)
    """Sequence → the payload of each message of the second stream."""
    last_beside: int = 0
    """The last sequence of the second stream."""

    def __post_init__(self) -> None:
        self.clock = StoppedClock(self.folder / "clock")
        self.graces_ns = {self.grace_ns}
        self.warehouse = self._opened()
        self.model = StreamModel(self.config)

    @property
    def terms_beside(self) -> Terms:
        """The configuration of the second stream, in the other format."""
        other = {"delta": "parquet", "parquet": "delta"}[self.terms["format"]]
        terms = {"name": NEIGHBOUR, "subjects": ["o.*"], "max_msgs": 5, "grace": "0s"}
        return terms | {"format": other}

    @property
    def grace_ns(self) -> int:
        """The configured grace."""
        return GRACES[self.terms["grace"]] * SECOND

    @property
    def config(self) -> StreamConfig:
        """The stream's configuration, parsed by the engine."""
        config = self.warehouse.config.stream(NAME)
        assert config is not None
        return config

    @property
    def stream(self) -> Stream:
        """The stream, opened as by another process."""
        return self.warehouse.new_stream(NAME)

    @property
    def has_table(self) -> bool:
        """Whether anything was written."""
        return self.stream.opened.store.exists()

    def _opened(self) -> Warehouse:
        path = self.folder / "retention.yaml"
        streams = [self.terms, self.terms_beside]
        path.write_text(json.dumps({"warehouse": ".", "streams": streams}), encoding="utf-8")
        return open_warehouse(path, engine="local", clock=self.clock)

    def edit(self, terms: Terms) -> None:
        """Change the configuration."""
        self.terms = terms
        self.graces_ns.add(self.grace_ns)
        self.warehouse = self._opened()
        self.model.config = self.config

    def newest_run(self) -> dict[str, Any]:
        """The newest outcome of the run history."""
        return self.stream.history()[0]


def done(outcomes: Sequence[Outcome[Any]]) -> Any:
    """The value of the only stream; raises its error."""
    [outcome] = outcomes
    if outcome.error is not None:
        raise outcome.error
    assert outcome.value is not None
    return outcome.value


@contextmanager
def refused(kinds: Refusals, words: Sequence[str] = ()) -> Iterator[None]:
    """Expect a refusal of one of these kinds, with one of these words."""
    with pytest.raises(kinds) as error:
        yield
    said = str(error.value)
    assert not words or any(word in said for word in words), (words, said)
