"""Scheduled messages (`Nats-Schedule`, ADR-51): refused and stored as a server does; schedules never run here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.config import StreamConfig
from retention.core import headers
from retention.core.schedules import is_pattern
from retention.core.subjects import is_valid_subject, matches
from retention.ingest.batch_headers import having
from retention.ingest.validation import Validation

SCHEDULE = "Nats-Schedule"
ZONE = "Nats-Schedule-Time-Zone"
SCHEDULE_TTL = "Nats-Schedule-TTL"
SCHEDULE_ROLLUP = "Nats-Schedule-Rollup"
TARGET = "Nats-Schedule-Target"
SOURCE = "Nats-Schedule-Source"
NEXT = "Nats-Schedule-Next"
SCHEDULER = "Nats-Scheduler"

_Reason = tuple[str, int | None]
_OFF: _Reason = ("it asks for a schedule, and allow_msg_schedules is off", 10188)


def refuse_schedules(
    screen: Validation, blocks: pa.ChunkedArray, subjects: pa.ChunkedArray, config: StreamConfig
) -> None:
    """Refuse schedules that the server refuses, and purges of a schedule, which only a server may send.

    Args:
        screen: the refusals of a batch.
        blocks: each message's header block.
        subjects: each message's subject, as it would be stored.
        config: the stream's.
    """
    asking = pc.fill_null(pc.match_substring(blocks, "\r\nNats-Schedule"), False)  # noqa: FBT003
    rows = np.flatnonzero(np.asarray(asking, dtype=bool))
    refused = defaultdict[_Reason, list[int]](list)
    texts = zip(blocks.take(rows).to_pylist(), subjects.take(rows).to_pylist(), strict=True)
    for row, (block, subject) in zip(rows.tolist(), texts, strict=True):
        for reason in _reasons(block, subject, config):
            refused[reason].append(row)
            break
    for (text, code), places in refused.items():
        mask = np.zeros(len(blocks), dtype=bool)
        mask[places] = True
        screen.refuse(mask, text, code)


def with_schedules_rolled_up(blocks: pa.ChunkedArray, config: StreamConfig) -> pa.ChunkedArray:
    """Header blocks with a subject roll-up added to each schedule that has none: a subject keeps one schedule."""
    if not config.allow_msg_schedules:
        return blocks
    plain = having(blocks, SCHEDULE) & ~having(blocks, headers.ROLLUP)
    return pc.if_else(pa.array(plain), headers.with_line(blocks, headers.ROLLUP, "sub"), blocks)


def _reasons(block: bytes, subject: str, config: StreamConfig) -> Iterator[_Reason]:
    """Reasons to refuse a message, in the server's order."""
    zone, pattern = headers.lookup(block, ZONE), _text(block, SCHEDULE)
    if zone is not None and not _is_zone(zone):
        text = f"its {ZONE} is not a time zone"
        yield (text, 10223) if config.allow_msg_schedules else _OFF
    if pattern and not config.allow_msg_schedules:
        yield _OFF
    if pattern:
        if not is_pattern(pattern, in_zone=zone is not None):
            yield (
                f"its {SCHEDULE} is not a schedule (@at, @every, @hourly and the like, or six fields)",
                10189,
            )
        yield from _settings(block, config)
        yield from _targets(block, subject, config)
        if _text(block, headers.ROLLUP).lower() not in ("", "sub"):
            yield f"a {SCHEDULE} excludes any {headers.ROLLUP} but sub", 10192
    yield from _purges(block, subject, config)


def _settings(block: bytes, config: StreamConfig) -> Iterator[_Reason]:
    ttl = _text(block, SCHEDULE_TTL)
    try:
        headers.parse_ttl(ttl)
    except ValueError:
        yield f"its {SCHEDULE_TTL} is not a TTL", 10191
    if _text(block, SCHEDULE_ROLLUP) not in ("", "sub"):
        yield f"its {SCHEDULE_ROLLUP} is not sub", 10192
    if ttl and not config.allow_msg_ttl:
        yield f"it has a {SCHEDULE_TTL}, and allow_msg_ttl is off", 10166


def _targets(block: bytes, subject: str, config: StreamConfig) -> Iterator[_Reason]:
    target, source = _text(block, TARGET), _text(block, SOURCE)
    no_target = f"its {TARGET} is not another subject of the stream", 10190
    no_source = f"its {SOURCE} is not a third subject of the stream", 10203
    if not is_valid_subject(target) or target == subject:
        yield no_target
    if source and (source in (target, subject) or not is_valid_subject(source)):
        yield no_source
    if not any(matches(taken, target) for taken in config.subjects):
        yield no_target
    if source and not any(matches(taken, source) for taken in config.subjects):
        yield no_source


def _purges(block: bytes, subject: str, config: StreamConfig) -> Iterator[_Reason]:
    following, scheduler = _text(block, NEXT), _text(block, SCHEDULER)
    if following:
        known = is_valid_subject(scheduler) and scheduler != subject
        if following != "purge" or not known:
            yield f"its {NEXT} and {SCHEDULER} are a server's to write", 10212
        if not config.allow_msg_schedules:
            yield _OFF
        yield f"{NEXT}: purge is not carried out here; delete the schedule on {scheduler}", None
    elif scheduler:
        yield f"its {SCHEDULER} is a server's to write", 10212


def _is_zone(name: bytes) -> bool:
    """Whether a name is in this machine's time zone database, or is the server's own zone."""
    if name == b"Local":
        return True
    try:
        ZoneInfo(name.decode())
    except (KeyError, ValueError, OSError):
        return False
    return True


def _text(block: bytes, name: str) -> str:
    return (headers.lookup(block, name) or b"").decode("utf-8", "surrogateescape")
