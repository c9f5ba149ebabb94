"""A verification of one stream: its table at one version, each file in a task, and its records against both."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.core.inventory import NO_RANGES
from retention.core.progress import log_progress
from retention.datafile.expected_stats import EXPECTED_COLUMNS
from retention.engines.select import Engines
from retention.errors import (
    DamagedError,
    ForeignRowsError,
    LostCommitError,
    RetentionError,
    StorageError,
    UsageError,
)
from retention.stores.layout import identities
from retention.stores.table_format import Inspection
from retention.verify.archive_contents import ArchiveFindings, verify_archive
from retention.verify.archives import ARCHIVE_CHECKS
from retention.verify.checks import STREAM_CHECKS, StreamToVerify
from retention.verify.data_files import FileToVerify, VerifiedFile, VerifyTask, verify_files
from retention.verify.finding import (
    Damage,
    Unverified,
    Verification,
    damage_of_error,
    damages_of,
)
from retention.verify.record import Scope, VerificationProgress, keep_last, key_of
from retention.verify.undoable import UNDO_CHECKS

TASK_BYTES = 64 << 20
"""The approximate bytes of a task."""
TASK_FILES = 256
ROUND_TASKS = 64
"""The tasks of a round; an interrupted verification repeats at most one."""
_ATTEMPTS = 3
_NAMED_PROGRAMS = 20
"""The files of other programs for which the log is searched; others are said to be of another program."""


@dataclass(frozen=True)
class VerifyOptions:
    """The scope of a verification: the files that it reads, and the digests that it records."""

    sample: float | None = None
    """The share of the files whose content is read, above 0 and at most 1; None: all of them."""
    records: bool = False
    """Whether the digests of intact files without one are recorded."""
    archive: bool = False
    """Whether the contents of the stream's archive are read."""

    @classmethod
    def of(
        cls, sample: str | float | None, *, records: bool = False, archive: bool = False
    ) -> VerifyOptions:
        """The options with a share as people write it.

        Args:
            sample: `1%`, or the number 0.01; None: all files.
            records: as `records`.
            archive: as `archive`.

        Raises:
            UsageError: it is no share above 0% and at most 100%.
        """
        if sample is None:
            return cls(records=records, archive=archive)
        share = _share(sample) if isinstance(sample, str) else sample
        if not 0 < share <= 1:
            raise UsageError(
                f"{sample!r} is not a sample: write a share above 0% and at most 100%, such as 1%"
            )
        return cls(float(share), records, archive)


def _share(text: str) -> float:
    """The share in a text such as `0.5%`; 0 for any other text."""
    number = text.removesuffix("%")
    is_share = text.endswith("%") and number.replace(".", "", 1).isdecimal()
    return float(number) / 100 if is_share else 0.0


def verify_stream(opened: OpenedStream, engines: Engines, options: VerifyOptions) -> Verification:
    """Verify a stream, and record that; nothing else is changed.

    Raises:
        RefusedError: the table needs a newer release, or uses a feature that this one does not handle.
        StorageError: the storage failed.
    """
    now_ns = opened.clock()
    try:
        table = _inspect(opened)
    except (DamagedError, ForeignRowsError, LostCommitError) as error:
        damage = damage_of_error("log", opened.layout.messages, error)
        return _kept(opened, _without_files(opened, now_ns, options, damage))
    if table is None:
        return _kept(opened, _without_files(opened, now_ns, options))
    progress = VerificationProgress(opened.root)
    scope = Scope(table.table_id, options.sample, options.records)
    started_ns, before = progress.begin(scope, now_ns)
    wanted, history = _chosen(opened, table, options, started_ns)
    results = {key: before[key] for key in wanted if key in before}
    resumed = len(results)
    rest = {key: each for key, each in wanted.items() if key not in before}
    done = resumed
    tasks = list(_tasks(rest, records=options.records))
    for at in range(0, len(tasks), ROUND_TASKS):
        read = _round(opened, engines, tasks[at : at + ROUND_TASKS], rest)
        progress.add(started_ns, read)
        results |= read
        done += len(read)
        if done < len(wanted):
            log_progress(f"verifying {opened.name}", done, len(wanted), "files")
    damages = [*history, *_of_records(opened, table, options.sample)]
    archived = ArchiveFindings()
    if options.archive:
        archived = verify_archive(opened, table, engines, options.sample)
        damages += archived.damages
    live = _still_live(opened, results)
    damages += [each for result in live for each in result.damages]
    result = Verification(
        opened.name,
        "stream",
        started_ns,
        opened.clock(),
        table.version,
        table.files.num_rows,
        len(results),
        sum(each.bytes for each in results.values()),
        options.sample,
        resumed,
        sum(each.is_recorded for each in live),
        tuple(dict.fromkeys(damages)),
        (
            *_named(opened, [each.unverified for each in live if each.unverified is not None]),
            *archived.unnamed,
        ),
    )
    return _kept(opened, result)


def _inspect(opened: OpenedStream) -> Inspection | None:
    return opened.table_format.inspect(opened.layout, opened.config.grace_ns)


def _kept(opened: OpenedStream, result: Verification) -> Verification:
    return keep_last(opened.root, result)


def _without_files(
    opened: OpenedStream, now_ns: int, options: VerifyOptions, *damages: Damage
) -> Verification:
    """The result for a stream whose table was never written, or cannot be read."""
    ended = opened.clock()
    return Verification(
        opened.name, "stream", now_ns, ended, -1, 0, 0, 0, options.sample, 0, 0, damages, ()
    )


def _chosen(
    opened: OpenedStream, table: Inspection, options: VerifyOptions, started_ns: int
) -> tuple[dict[str, FileToVerify], list[Damage]]:
    """The files to read, by key, and the damage of a history that cannot tell what was removed."""
    damages: list[Damage] = []
    removed: dict[int, np.ndarray] = {}
    try:
        removed = StreamToVerify(opened, table).removed
    except StorageError:
        raise
    except RetentionError as error:
        damages.append(damage_of_error("history", opened.name, error))
    every = dict(_files(opened, table, removed))
    if options.sample is None or not every:
        return every, damages
    count = max(1, round(options.sample * len(every)))
    # The start of the verification is the seed, so that a resumed one chooses the same files.
    chosen = random.Random(started_ns).sample(sorted(every), count)  # noqa: S311
    return {key: every[key] for key in sorted(chosen)}, damages


def _files(
    opened: OpenedStream, table: Inspection, removed: dict[int, np.ndarray]
) -> Iterator[tuple[str, FileToVerify]]:
    """Every live file with everything that is known about it, by key."""
    names = [name for name in EXPECTED_COLUMNS if name in table.logged.schema.names]
    logged = {row["path"]: row for row in table.logged.select(["path", *names]).to_pylist()}
    cached = {row["path"]: row for row in table.described.to_pylist()}
    identified = zip(
        identities(table.files),
        table.locations,
        table.files["file_bytes"].to_pylist(),
        table.files["modified_ms"].to_pylist(),
        strict=True,
    )
    for identity, location, length, modified_ms in identified:
        path, partition, _ = identity
        known = cached.get(path)
        bounds = logged[path] if known is None else known
        yield (
            key_of(path, length, modified_ms),
            FileToVerify(
                opened.layout.data_file(identity, location),
                length,
                {name: logged[path][name] for name in names},
                known,
                table.hidden.get(path),
                _within(removed.get(partition, NO_RANGES), bounds),
            ),
        )


def _within(ranges: np.ndarray, bounds: Mapping[str, int | None]) -> np.ndarray:
    """The ranges that meet the sequences of a file; all of them if its bounds are unknown."""
    lowest, highest = bounds.get("min_seq"), bounds.get("max_seq")
    if lowest is None or highest is None:
        return ranges
    first = np.searchsorted(ranges[:, 1], lowest, side="left")
    end = np.searchsorted(ranges[:, 0], highest, side="right")
    return ranges[first:end].copy()


def _tasks(wanted: dict[str, FileToVerify], *, records: bool) -> Iterator[VerifyTask]:
    """The files, divided into tasks of about `TASK_BYTES`."""
    held: list[FileToVerify] = []
    for each in wanted.values():
        held.append(each)
        if len(held) == TASK_FILES or sum(file.bytes for file in held) >= TASK_BYTES:
            yield VerifyTask(tuple(held), records)
            held = []
    if held:
        yield VerifyTask(tuple(held), records)


def _round(
    opened: OpenedStream,
    engines: Engines,
    tasks: Sequence[VerifyTask],
    wanted: dict[str, FileToVerify],
) -> dict[str, VerifiedFile]:
    weights = [task.weight for task in tasks]
    engine = engines.pick(opened.config.engine, sum(weights), opened.config.local_limit)
    by_path = {each.file.path: key for key, each in wanted.items()}
    results = engine.map(verify_files, tasks, weights)
    return {by_path[result.path]: result for some in results for result in some}


def _of_records(opened: OpenedStream, table: Inspection, sample: float | None) -> list[Damage]:
    """The damages of everything but the content of live files; looked for again if the table changed meanwhile."""
    for _ in range(_ATTEMPTS):
        checks = [*STREAM_CHECKS, *UNDO_CHECKS, *ARCHIVE_CHECKS]
        damages = list(damages_of(checks, StreamToVerify(opened, table, sample)))
        newer = _inspect(opened) if damages else None
        if newer is None or newer.version == table.version:
            break
        table = newer
    return damages


def _still_live(opened: OpenedStream, results: dict[str, VerifiedFile]) -> list[VerifiedFile]:
    """The results, without findings about files that left the table meanwhile."""
    is_damaged = any(each.damages for each in results.values())
    newer = _inspect(opened) if is_damaged else None
    if newer is None:
        return list(results.values())
    live = pa.chunked_array([pa.array([each.path for each in results.values()], pa.string())])
    still = pc.is_in(live, value_set=newer.files["path"].combine_chunks()).to_pylist()
    return [each for each, is_live in zip(results.values(), still, strict=True) if is_live]


def _named(opened: OpenedStream, unverified: Sequence[Unverified]) -> Iterator[Unverified]:
    """The files without a digest, with the commit of another program that wrote each."""
    for number, each in enumerate(unverified):
        act = None
        if each.reason.startswith("another program") and number < _NAMED_PROGRAMS:
            name = each.subject.rpartition("/")[2].encode()
            act = opened.table_format.foreign_act(opened.layout, -1, [name])
        if act is None:
            yield each
        else:
            version, text = act
            yield Unverified(each.subject, f"written by another program: {text}, version {version}")
