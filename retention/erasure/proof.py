"""The proof that nothing of an erasure is left: every file is searched, and what is in the way of it is recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from retention.erasure.concealing import CONCEALED, concealed_paths
from retention.erasure.keyed_hash import KeyedHash
from retention.erasure.needle_file import destroy_needles
from retention.erasure.needles import Needles
from retention.erasure.record import ErasureRecord, Erasures, Trace
from retention.erasure.search import SearchResult, search
from retention.storage import files


@dataclass(frozen=True)
class Proof:
    """The places that must have no string of an erasure."""

    erasures: Erasures
    keyed: KeyedHash
    places: Sequence[str]
    """Directories with all files below, and files."""
    spared: Sequence[str]
    """Places among them that are not searched."""
    decodable: Sequence[str]
    """Places among them of which every file has to be read to its end."""

    def searched(
        self, record: ErasureRecord, needles: Needles, former: Sequence[str] = ()
    ) -> tuple[ErasureRecord, SearchResult]:
        """Search the places, and record what was found.

        Places where an earlier search found something come first; the rest is searched once these are clean.

        Args:
            record: the erasure.
            needles: its strings that no message or row left has.
            former: files that still have its rows, whatever strings are in them.

        Raises:
            StorageError: a place cannot be read.
        """
        known = list(self._known(record))
        if known:
            result = search(known, needles, spared=self.spared)
            if former or result.findings or list(self._unread(result)):
                return self._recorded(record, needles, result, former), result
        result = search(self.places, needles, spared=self.spared)
        return self._recorded(record, needles, result, former), result

    def _recorded(
        self,
        record: ErasureRecord,
        needles: Needles,
        result: SearchResult,
        former: Sequence[str],
    ) -> ErasureRecord:
        unread = list(self._unread(result))
        named = [text for at in result.findings for text in (at.location, at.view)]
        paths = [*named, *unread, *former]
        shown = concealed_paths(paths, needles, self.keyed) if paths else {}
        rows = [
            Trace(location=shown[location], what="row", encoding="raw", view="rows", offset=0)
            for location in former
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
        left = record.updated(traces=traces, unread=[shown[location] for location in unread])
        if left != record:
            self.erasures.write(left)
        return left

    def _known(self, record: ErasureRecord) -> Iterator[str]:
        """The existing places, each once, where the search before found something or could not read."""
        listed = [*(trace.location for trace in record.traces), *record.unread]
        # The directory of a concealed name is searched instead.
        places = {location.partition(f"/{CONCEALED}")[0] for location in listed}
        yield from (place for place in sorted(places) if _is_in(place, self.places))

    def _unread(self, result: SearchResult) -> Iterator[str]:
        return (location for location in result.unread if _is_in(location, self.decodable))


def closed(erasures: Erasures, record: ErasureRecord) -> ErasureRecord:
    """Destroy the key, then the needles, of an erasure with a report, and return its record."""
    done = record.updated(state="done", key=None, traces=[], unread=[])
    if done != record:
        erasures.write(done)
    destroy_needles(erasures.needles(record.id))
    return done


def _is_in(location: str, places: Iterable[str]) -> bool:
    return any(location == place or location.startswith(files.join(place, "")) for place in places)
