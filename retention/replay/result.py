"""The answer of a replay: each message's fate, and what the server would have held at some instants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.json_object import JsonObject
from retention.core.units import parse_as_of
from retention.errors import MissingMessageError
from retention.rules.replay.fates import DUPLICATE, KEPT, REFUSED, REMOVED, HeldState


@dataclass(frozen=True)
class ReplayRequest:
    """A policy to replay, and when to look."""

    settings: Mapping[str, Any]
    """Key of the configuration → value as a file would have it; empty for the configured policy."""
    instants: tuple[int, ...]
    """Nanoseconds since the epoch; the last one ends the replay."""


@dataclass(frozen=True)
class Replay:
    """A stream as a server with some limits from its first message on would have had it."""

    stream: str
    settings: Mapping[str, Any]
    """The changes to the configured policy."""
    limits: tuple[str, ...]
    """The limits in sentences."""
    until_ns: int
    """The end: later publishes were not taken, and later removals did not happen."""
    fates: pa.Table
    """Shape `FATES`: one row for each publish and each delete marker, in the order of the server."""
    states: tuple[HeldState, ...]
    """One for each instant."""
    missing: int
    """The sequences without a message, from the stream's first to its last: what was published there is not known."""

    @property
    def published(self) -> int:
        """The publishes that were replayed."""
        return len(self.fates) - self.markers

    @property
    def markers(self) -> int:
        """The delete markers that the server would have written."""
        return int(self.fates["seq"].null_count)

    @property
    def removed_by(self) -> Mapping[str, int]:
        """Rule → the messages and markers that it removes until the end."""
        return self._counts(REMOVED)

    @property
    def refused_for(self) -> Mapping[str, int]:
        """The server's words of a refusal → the publishes that it refuses with them."""
        return self._counts(REFUSED)

    @property
    def duplicates(self) -> int:
        """The publishes that the server answers as duplicates."""
        return self._fate_count(DUPLICATE)

    def fate(self, seq: int) -> JsonObject:
        """The fate of the message with a sequence here, as a row of `fates`.

        Raises:
            MissingMessageError: no message that was replayed has it.
        """
        rows = self.fates.filter(pc.equal(self.fates["seq"], seq)).to_pylist()
        if not rows:
            raise MissingMessageError(
                f"{self.stream}: no message that was published until the end of the replay has the sequence {seq:,}"
            )
        return dict(rows[0])

    def as_json(self) -> JsonObject:
        """The numbers as JSON values."""
        return {
            "stream": self.stream,
            "settings": dict(self.settings),
            "limits": list(self.limits),
            "until_ns": self.until_ns,
            "published": self.published,
            "missing": self.missing,
            "kept": self._fate_count(KEPT),
            "removed_by": dict(self.removed_by),
            "refused_for": dict(self.refused_for),
            "duplicates": self.duplicates,
            "markers": self.markers,
            "states": [vars(state) for state in self.states],
        }

    def _fate_count(self, fate: str) -> int:
        return int(pc.sum(pc.equal(self.fates["fate"], fate), min_count=0).as_py())

    def _counts(self, fate: str) -> Mapping[str, int]:
        reasons = self.fates.filter(pc.equal(self.fates["fate"], fate))["reason"]
        return dict(sorted(Counter(reasons.to_pylist()).items()))


def replay_request(settings: Mapping[str, Any], at: Iterable[Any], now_ns: int) -> ReplayRequest:
    """A request in the terms of its users.

    Args:
        settings: key → value.
        at: instants; `now` in them, and None, are `now_ns`; without any it is the only one.
        now_ns: nanoseconds since the epoch.

    Raises:
        UsageError: an instant is none.
    """
    instants = [now_ns if each is None else parse_as_of(each, now_ns) for each in at]
    return ReplayRequest(settings, tuple(sorted(instants or [now_ns])))
