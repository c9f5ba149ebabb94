"""The proof that nothing of an erasure is left: every file is searched, and what is in the way of it is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from retention.core.subjects import path_name
from retention.erasure.concealing import CONCEALED, concealed_paths
from retention.erasure.keyed_hash import KeyedHash
from retention.erasure.needle_file import NeedleFile
from retention.erasure.needles import Needles
from retention.erasure.record import ErasureRecord, Erasures, Trace
from retention.erasure.report import ErasureReport
from retention.erasure.search import SearchResult, search
from retention.storage import files


@dataclass(frozen=True)
class Proof:
    """The places that must have no string of an erasure, and what is done before they are searched."""

    erasures: Erasures
    keyed: KeyedHash
    places: Sequence[str]
    """Directories with all files below, and files."""
    spared: Sequence[str]
    """Places among them that are not searched."""
    decodable: Sequence[str]
    """Places among them of which every file has to be read to its end."""
    version: int
    """The version of the table."""
    survivors: Callable[[], Iterable[pa.Table]]
    """The texts of all messages or rows that stay."""
    forget: Callable[[ErasureRecord, Needles], ErasureRecord]
    """Takes strings of an erasure out of our own records; the record of the erasure afterwards."""
    former: Sequence[str] = ()
    """Files that have rows of the erasure, whatever strings are in them: while there is one, it cannot end."""

    def attempted(
        self, record: ErasureRecord, content: NeedleFile
    ) -> tuple[ErasureRecord, Needles, SearchResult]:
        """Search the places; the record with what was found, the needles searched for, and the amount searched.

        Where an earlier search found something is searched first, and the rest once that is clean. Only a search of all
        places for needles of which the survivors of now were subtracted can end an erasure. What is in its way needs
        no survivors: those of the same version, or of an earlier one if `former` is in the way anyhow.

        Raises:
            StorageError: a place cannot be listed.
        """
        left = content.left if self.former or content.left_at == self.version else None
        needles = self._needles(content) if left is None else left
        record = self.forget(record, needles)
        if content.left is not None:
            result = self._searched(list(self._known(record)), needles)
            if self._is_unfinished(result):
                return self._recorded(record, content, needles, result)
        if needles is left:
            needles = self._needles(content)
            record = self.forget(record, needles)
        return self._recorded(record, content, needles, self._searched(self.places, needles))

    def concluded(self, report: ErasureReport) -> ErasureReport:
        """End the erasure of a report of which nothing was found; any other is returned as it is."""
        record = report.record
        if not record.is_clean:
            return report
        done = replace(report, record=record.updated(state="done", key=None))
        self.erasures.write_report(record.id, done.as_json())
        return replace(done, record=self.erasures.close(record))

    def _needles(self, content: NeedleFile) -> Needles:
        return content.needles.without(self.survivors())

    def _searched(self, places: Sequence[str], needles: Needles) -> SearchResult:
        return search(places, needles, spared=(*self.spared, *self.former))

    def _is_unfinished(self, result: SearchResult) -> bool:
        return bool(self.former or result.findings or list(self._unread(result)))

    def _recorded(
        self, record: ErasureRecord, content: NeedleFile, needles: Needles, result: SearchResult
    ) -> tuple[ErasureRecord, Needles, SearchResult]:
        """Write what a search found, and the needles for the next one."""
        unread = list(self._unread(result))
        named = [text for at in result.findings for text in (at.location, at.view)]
        paths = [*named, *unread, *self.former]
        shown = concealed_paths(paths, needles, self.keyed) if paths else {}
        rows = [
            Trace(location=shown[location], what="row", encoding="raw", view="rows", offset=0)
            for location in self.former
        ]
        traces = rows + [
            Trace(
                location=shown[at.location],
                what=at.kind,
                encoding=at.encoding,
                view=shown[at.view],
                offset=at.offset,
            )
            for at in result.findings
        ]
        now = record.updated(traces=traces, unread=[shown[location] for location in unread])
        if now != record:
            self.erasures.write(now)
        if not now.is_clean and needles is not content.left:
            kept = replace(content, left=needles, left_at=self.version)
            self.erasures.write_needles(now, kept)
        return now, needles, result

    def _known(self, record: ErasureRecord) -> Iterator[str]:
        """The existing places, each once, where the search before found something or could not read."""
        listed = [*(trace.location for trace in record.traces), *record.unread]
        # The directory of a concealed name is searched instead.
        places = {location.partition(f"/{CONCEALED}")[0] for location in listed}
        yield from (place for place in sorted(places) if _is_in(place, self.places))

    def _unread(self, result: SearchResult) -> Iterator[str]:
        unreadable = set(result.unreadable)
        return (
            location
            for location in result.unread
            if location in unreadable or _is_in(location, self.decodable)
        )


def directories_of_others(warehouse: str, kind: str, owner: str) -> Iterator[str]:
    """The directories of a kind, `streams` or `tables`, and of histories, but those of the stream or table `owner`."""
    for above in (kind, "runs"):
        directory = files.join(warehouse, above)
        for name in files.directories(directory):
            if name != path_name(owner):
                yield files.join(directory, name)


def _is_in(location: str, places: Iterable[str]) -> bool:
    return any(location == place or location.startswith(files.join(place, "")) for place in places)
