"""Acts of erasures: messages of which no file may have a copy afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pyarrow.parquet as pq

from retention.cli.erasing import _named_in
from retention.erasure.record import Trace
from retention.errors import RefusedError
from retention.views.notebook import ShownErasure
from tests.support.histories.actors import Actors, refused
from tests.support.histories.stored import Stored, matches
from tests.support.histories.terms import PERSON, SUBJECTS
from tests.support.strangers_search import hiding_places

SEARCHED = 12
"""The length from which strings are searched for."""
TOKEN = 40
"""The length from which a payload is of one message only."""


def erase(actors: Actors, rng: Random) -> None:
    """Erase some sequences, or everything on some subjects."""
    model = actors.model
    if not actors.has_table:
        actors.said = "erase: no table"
        return
    subjects, seqs = _request(actors, rng)
    actors.said = f"erase {subjects or seqs}"
    erased = [m for m in _every(actors) if _is_meant(m, subjects, seqs)]
    ever = [m for run in model.runs for m in run.removed.values()]
    unknown = set(seqs) - {m.seq for m in erased}
    if unknown or _has_unsure_id(actors, subjects, seqs):
        actors.said += ": unsure"
        return
    if any(map(model.holds.cover, erased)):
        actors.said += ": held"
        with refused((RefusedError,), ["legal hold"]):
            actors.stream.erase(subjects=subjects, seqs=seqs, reason="request 7")
        return
    try:
        report = actors.stream.erase(subjects=subjects, seqs=seqs, reason="request 7").apply()
    except RefusedError:
        # A file with a removed message under a legal hold would have to go.
        if not any(map(model.holds.cover, ever)):
            raise
        actors.said += ": a removed message is held"
        return
    if actors.stream.opened.table_format.keeps_versions:
        model.log_since_ns = actors.clock()
    _erased(actors, report, erased)
    _search(actors, rng, subjects)


def _request(actors: Actors, rng: Random) -> tuple[list[str], list[int]]:
    """Subject filters or sequences, sometimes by way of a file."""
    model = actors.model
    if rng.random() < 0.5:
        named: list[str | int] = [rng.choice([PERSON, PERSON, *SUBJECTS])]
    else:
        known = sorted({m.seq for m in _every(actors)})
        named = list(rng.sample(known, min(len(known), rng.choice([1, 1, 3]))))
        named = named or [model.next_seq]
    subjects = [each for each in named if isinstance(each, str)]
    seqs = [each for each in named if isinstance(each, int)]
    if rng.random() < 0.7:
        return subjects, seqs
    place = actors.folder.with_suffix(".jsonl")
    lines = [{"subject": each} for each in subjects] + [{"seq": each} for each in seqs]
    place.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return _named_in(place)


def _removed(actors: Actors) -> list[Stored]:
    """The removed messages of which files are left."""
    return [
        message
        for run in actors.model.runs
        if not (run.lost or run.erased or run.undone)
        for seq, message in run.removed.items()
        if run.kept is None or seq in run.kept
    ]


def _every(actors: Actors) -> list[Stored]:
    """The messages that are live, archived, or of which files are left; each once."""
    archived = [message for message, _ in actors.model.archived.values()]
    every = [*archived, *_removed(actors), *actors.model.messages]
    return list({message.seq: message for message in every}.values())


def _is_meant(message: Stored, subjects: list[str], seqs: list[int]) -> bool:
    return message.seq in seqs or any(matches(each, message.subject) for each in subjects)


def _has_unsure_id(actors: Actors, subjects: list[str], seqs: list[int]) -> bool:
    """Whether a message id counts of which nobody knows if a file has its message."""
    known = {seq for seq, _ in actors.model.ids.values()}
    unsure = [run for run in actors.model.runs if run.lost or run.erased or run.kept is not None]
    removed = [m for run in unsure for m in run.removed.values()]
    return any(m.seq in known and _is_meant(m, subjects, seqs) for m in removed)


def _erased(actors: Actors, report: ShownErasure, erased: list[Stored]) -> None:
    """Carry out the erasure in the model."""
    model, now_ns = actors.model, actors.clock()
    model.holds.expire(now_ns)
    if not erased and report.record.id in model.erasures:
        actors.said += " (again, and nothing is left)"
        return
    model.erasures.add(report.record.id)
    gone = {message.seq for message in erased}
    live = sorted(gone & model.live.keys())
    assert report.removed_messages == len(live), (report, live)
    if live:
        assert report.run is not None
        run = model.remove(report.run, "erase", dict.fromkeys(live, "erase"), now_ns)
        assert report.removed_bytes == run.removed_bytes
        run.erased = True
    for run in model.runs:
        if run.name in report.record.lost_undos:
            run.erased = True
        elif not (run.lost or run.erased or run.undone) and run.kept is None:
            assert not gone & run.removed.keys(), f"{run.name} keeps erased messages"
            if gone & set(run.markers):
                run.kept = frozenset()
    model.ids = {key: value for key, value in model.ids.items() if value[0] not in gone}
    model.erase_archived(gone)
    model.erased += [message for message in erased if len(message.payload) >= TOKEN]
    _check_done(actors, report, erased)


def _check_done(actors: Actors, report: ShownErasure, erased: list[Stored]) -> None:
    """Check that an erasure is unfinished only because of strings that other removed messages have, or seem to have."""
    if report.is_done:
        return
    actors.said += f" (unfinished: {len(report.traces)})"
    strings = {string for message in erased for string in _strings(message)}
    # A copy in an archive has all messages of its file, also those of runs whose own copies are deleted.
    removed = [m for run in actors.model.runs for m in run.removed.values()]
    others = (m for m in removed if m not in erased)
    is_shared = any(strings & set(_strings(m)) for m in others)
    assert is_shared or all(_is_compressed(trace, strings) for trace in report.traces), (
        report.traces
    )


def _is_compressed(trace: Trace, strings: set[bytes]) -> bool:
    """Whether compression has put a string together from parts of others, so that no row has it."""
    with pq.ParquetFile(trace.location) as file:
        rows = repr(file.read().to_pylist()).encode()
    return trace.view == "bytes" and not any(string in rows for string in strings)


def _strings(message: Stored) -> list[bytes]:
    values = [
        message.subject.encode(),
        message.payload,
        message.block or b"",
        (message.msg_id or "").encode(),
    ]
    return [value for value in values if len(value) >= SEARCHED]


def _search(actors: Actors, rng: Random, subjects: list[str]) -> None:
    """Search for what was erased as a stranger, every so often."""
    if rng.random() < 0.3:
        shared = [m for m in _removed(actors) if m.subject == PERSON]
        by_subject = PERSON in subjects and not shared
        search_erased(actors, [PERSON.encode()] if by_subject else [])


def search_erased(actors: Actors, more: list[bytes] | None = None) -> None:
    """Check that a stranger finds no payload of an erased message."""
    tokens = [message.payload for message in actors.model.erased] + (more or [])
    if tokens:
        place = Path(actors.folder)
        assert hiding_places(str(place), tokens) == []


def resume(actors: Actors, rng: Random) -> None:
    """Go on with the erasures that are unfinished."""
    del rng
    if not actors.has_table:
        actors.said = "resume: no table"
        return
    reports = actors.stream.resume_erasures()
    actors.model.holds.expire(actors.clock())
    actors.said = f"resume {[report.is_done for report in reports]}"
