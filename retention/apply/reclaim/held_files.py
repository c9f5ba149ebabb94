"""Dead files that may have messages under a legal hold, by sequences, times and subject digests; unknown ones count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from retention.context.context import OpenedStream
from retention.context.holds import holds_in_effect
from retention.core.counters import Counters
from retention.core.spans import Array, spans_of
from retention.core.subjects import matching_mask
from retention.core.vector_paths import VECTOR_MARK, all_stored
from retention.datafile.subject_digest import digest_at
from retention.rules.holds import HeldMessages

_ORDER = [(name, "ascending") for name in ("partition", "segment", "min_seq", "path")]


def held_paths(
    opened: OpenedStream, counters: Counters, removed: Iterable[pa.Table]
) -> dict[str, set[str]]:
    """Legal hold in effect → the paths of the files that may have a message which it covers.

    Args:
        opened: the stream.
        counters: those of the version on which the reclaim is based.
        removed: the files that runs removed, shape `FILE_STATS`.

    Raises:
        DamagedError: a record of a legal hold is missing or cannot be read.
    """
    holds = holds_in_effect(opened, counters).holds
    held: dict[str, set[str]] = {hold.id: set() for hold in holds}
    for table in removed if holds else ():
        files = table.sort_by(_ORDER)
        digests: dict[str, pa.Array | None] = {}
        for hold in holds:
            paths = files["path"].filter(pa.array(_some(files, hold))).to_pylist()
            held[hold.id] |= all_stored(
                path for path in paths if _has_subject(opened, path, hold, digests)
            )
    return held


def _some(files: pa.Table, hold: HeldMessages) -> Array:
    """A mask of the files whose bounds a legal hold meets; under a vector a file has more rows than its bounds."""
    apart = spans_of(files, np.ones(files.num_rows, dtype=bool))
    has_vector = [VECTOR_MARK in path for path in files["path"].to_pylist()]
    return hold.some(apart) | np.array(has_vector, dtype=bool)


def _has_subject(
    opened: OpenedStream, path: str, hold: HeldMessages, digests: dict[str, pa.Array | None]
) -> bool:
    """Whether a file may have a message of a subject that a legal hold covers."""
    if hold.subject is None or VECTOR_MARK in path:
        return True
    if path not in digests:
        digest = digest_at(opened.layout.engine_path("subjects", path)).load()
        digests[path] = None if digest is None else digest.counts["subject"].combine_chunks()
    subjects = digests[path]
    if subjects is None:
        return True
    return bool(np.any(matching_mask(subjects.cast(pa.string()), (hold.subject,))))


def kept_by(held: Mapping[str, set[str]], kept: Iterable[str]) -> dict[str, int] | None:
    """Legal hold → the files that it keeps; None: none is in effect."""
    paths = set(kept)
    return {hold: len(paths & of_hold) for hold, of_hold in held.items()} if held else None
