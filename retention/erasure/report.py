"""The report of an erasure: who erased what (by keyed hashes) when, the files that went, and what the search found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from retention.core.json_object import JsonObject
from retention.erasure.needles import Needles
from retention.erasure.record import ErasureRecord, Trace
from retention.erasure.search import SearchResult


@dataclass(frozen=True)
class ErasureReport:
    """The report of an erasure; while it is unfinished, what has been done so far."""

    stream: str
    record: ErasureRecord
    run: str | None
    """The run that removed the live messages; None: none was live, or they are not removed yet."""
    removed_messages: int = 0
    removed_bytes: int = 0
    not_searched: int = 0
    """Values of fewer than 12 bytes, which cannot be searched for."""
    shared: int = 0
    """Values that other messages have as well, which stay."""
    searched_files: int = 0
    searched_bytes: int = 0
    undecodable: tuple[str, ...] = ()
    """The locations of files that could be searched only as they are stored."""
    vanished: tuple[str, ...] = ()
    """The locations of files that were deleted before they could be searched."""
    location: str | None = None
    """The location of a table in place, whose owner removes older versions; None: of a stream."""

    def with_search(self, needles: Needles, searched: SearchResult) -> ErasureReport:
        """The report with what a search for some needles read."""
        return replace(
            self,
            not_searched=needles.too_short,
            shared=needles.shared,
            searched_files=searched.files,
            searched_bytes=searched.bytes_raw,
            undecodable=searched.undecodable,
            vanished=searched.vanished,
        )

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return self.record.is_done

    @property
    def traces(self) -> Sequence[Trace]:
        """The places that still have strings of erased messages."""
        return self.record.traces

    def as_json(self) -> JsonObject:
        """The report as JSON values."""
        files = self.record.deleted
        return {
            "stream": self.stream,
            **self.record.as_json(),
            "run": self.run,
            "removed_messages": self.removed_messages,
            "removed_bytes": self.removed_bytes,
            "deleted_files": len(files),
            "deleted_bytes": sum(file.bytes for file in files),
            "not_searched": self.not_searched,
            "shared": self.shared,
            "searched_files": self.searched_files,
            "searched_bytes": self.searched_bytes,
            "undecodable": list(self.undecodable),
            "vanished": list(self.vanished),
        }
