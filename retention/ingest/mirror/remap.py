"""Changes to a message on its way from an origin: its subject, its headers, its time (as server 2.15 does)."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from retention.config import StreamConfig
from retention.core import message_rows
from retention.ingest.mirror.origin import View
from retention.ingest.subject_transform import mapped, transform_subjects
from retention.ingest.ttl_clamp import clamp_ttls

STREAM_SOURCE = "Nats-Stream-Source"

_FIRST_LINE = b"NATS/1.0\r\n"
_ONLY_FIRST_LINE = b"NATS/1.0\r\n\r\n"
_OF_MIRRORS = ("Nats-Expected-", "Nats-Batch-")
_OF_SOURCES = (*_OF_MIRRORS, f"{STREAM_SOURCE}:")
"""The beginnings of the header lines that a mirror and a source leave behind."""


def mirrored(view: View, config: StreamConfig, raw: pa.Table) -> pa.Table:
    """Messages as a mirror keeps them, shape `FILE_COLUMNS`: sequence and time stay."""
    stored = {
        "seq": raw["seq"],
        "subject": _renamed(raw["subject"], view, config),
        "headers": _without(raw["headers"], _OF_MIRRORS),
        "payload": raw["payload"],
        "ts_ns": raw["ts_ns"],
        "origin_ts_ns": raw["origin_ts_ns"],
    }
    return message_rows.complete_rows(pa.table(stored), config.storage)


def sourced(view: View, config: StreamConfig, raw: pa.Table, as_of_ns: int) -> pa.Table:
    """Messages as a stream with sources stores them, without `seq`: anew, with where they come from as a header."""
    blocks = _with_source(_without(raw["headers"], _OF_SOURCES), raw, view)
    now = pa.repeat(pa.scalar(as_of_ns, pa.int64()), raw.num_rows)
    stored = {
        "subject": _renamed(raw["subject"], view, config),
        "headers": clamp_ttls(blocks, config),
        "payload": raw["payload"],
        "ts_ns": pa.chunked_array([now]),
        "origin_ts_ns": raw["ts_ns"],
    }
    return message_rows.complete_rows(pa.table(stored), config.storage)


def _renamed(subjects: pa.ChunkedArray, view: View, config: StreamConfig) -> pa.ChunkedArray:
    """Subjects renamed by the origin's transforms first, then by the stream's own."""
    source = view.origin.source
    return transform_subjects(mapped(config.name, subjects, source.subject_transforms), config)


def _without(blocks: pa.ChunkedArray, beginnings: tuple[str, ...]) -> pa.ChunkedArray:
    """Header blocks without the lines that begin so; null where none is left."""
    names = "|".join(map(re.escape, beginnings))
    left = pc.replace_substring_regex(blocks, rf"(?s)\r\n(?:(?:{names}).*?\r\n)+", "\r\n")
    return pc.if_else(pc.equal(left, _ONLY_FIRST_LINE), pa.scalar(None, pa.binary()), left)


def _with_source(blocks: pa.ChunkedArray, raw: pa.Table, view: View) -> pa.ChunkedArray:
    """Blocks with one more line: stream, sequence, filters, destinations, subject there, identity of that stream."""
    filters, destinations = view.origin.selection
    before = pc.replace_substring_regex(pc.fill_null(blocks, _FIRST_LINE), r"\r\n\r\n\z", "\r\n")
    return pc.binary_join_element_wise(
        before,
        f"{STREAM_SOURCE}: {view.origin.source.name} ".encode(),
        raw["seq"].cast(pa.string()).cast(pa.binary()),
        f" {filters} {destinations} ".encode(),
        raw["subject"].cast(pa.binary()),
        f" {view.identity}\r\n\r\n".encode(),
        b"",
    )
