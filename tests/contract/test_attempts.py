"""Concurrent and successive attempts of one task: no attempt touches the files of another."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from retention.apply import archive
from retention.apply.archive import ArchiveTask, archive_file
from retention.core.inventory import slot_of
from retention.datafile import rewrite
from retention.datafile.parquet import stats_table
from retention.datafile.rewrite import RewriteTask, copy_remaining, remaining_rows
from retention.engine_port import run_task
from retention.errors import StorageError
from retention.ports import Store
from retention.storage import files
from tests.contract.conftest import STORES, Stage
from tests.contract.streams import append, latest, removing, sequences


def a_copy(store: Store) -> RewriteTask:
    """A task that omits messages 1 to 3 of ten."""
    append(store, range(1, 11))
    [source] = store.data_files(latest(store)[1])
    return RewriteTask(source, (store.stage_copy(source),), np.array([[1, 3]]))


def cut_short(read: Any) -> Any:
    """A reader with storage that fails after the first chunk."""

    def reading(*given: Any) -> Iterator[Any]:
        yield next(iter(read(*given)))
        raise OSError(errno.EIO, "the storage failed")

    return reading


@pytest.mark.parametrize("stage", STORES, indirect=True)
def test_a_straggler_leaves_the_committed_file_alone(
    stage: Stage, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = a_copy(store)
    snapshot, before = latest(store)
    first, second = (run_task(copy_remaining, task) for _ in range(2))
    [won], [lost] = first.stats, second.stats
    assert won["path"] != lost["path"]
    assert slot_of(won["path"]) == slot_of(lost["path"]) == slot_of(task.targets[0].path)
    store.commit(removing(before, stats_table([won]), run="r"), snapshot)
    with monkeypatch.context() as patched:
        patched.setattr(rewrite, "remaining_rows", cut_short(remaining_rows))
        with pytest.raises(StorageError):
            run_task(copy_remaining, task)
    run_task(copy_remaining, task)
    store.discard([task.targets[0].path])
    assert sequences(stage.open()) == list(range(4, 11))


@pytest.mark.parametrize("stage", STORES, indirect=True)
def test_what_no_commit_names_is_deleted_whoever_wrote_it(stage: Stage, store: Store) -> None:
    task = a_copy(store)
    written = [run_task(copy_remaining, task).stats[0] for _ in range(2)]
    [task_file] = task.targets
    places = [task_file.named(one["path"]) for one in written]
    assert all(files.length(place.location) for place in places)
    store.discard([task_file.path])
    assert not any(files.length(place.location) for place in places)
    assert not any(files.length(place.digest_location) for place in places)
    assert sequences(stage.open()) == list(range(1, 11))


@pytest.mark.parametrize("stage", ["delta", "delta-s3"], indirect=True)
def test_a_straggler_leaves_the_archived_copy_alone(
    stage: Stage, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = a_copy(store).source
    task = ArchiveTask(source, f"{stage.root}/archive/copy.parquet")
    wanted = archive_file(task)
    # An attempt that read before the first one finished.
    monkeypatch.setattr(archive, "_same", lambda _: None)
    with monkeypatch.context() as patched:
        patched.setattr(files, "chunks", cut_short(files.chunks))
        with pytest.raises(StorageError):
            archive_file(task)
    assert archive.digest_of(task.copy) == wanted
