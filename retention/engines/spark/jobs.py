"""Jobs of a session, as monitoring shows them: labelled by stream, step and run, with progress by tasks."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from retention.core.labels import Label, current_label, labelled
from retention.core.progress import EVERY_S, log_progress
from retention.engines.spark.connect import is_connect
from retention.errors import CancelledError

if TYPE_CHECKING:
    from pyspark import SparkContext, StatusTracker
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.shell.progress import ProgressHandler

_GROUP, _DESCRIPTION = "spark.jobGroup.id", "spark.job.description"
"""Local properties of a thread; its jobs inherit them."""
_CANCELLED = re.compile(r"\[(SPARK_JOB_CANCELLED|OPERATION_CANCELED)\]")
"""Spark's error conditions of cancelled work: a job of a classic session, an operation of a Connect session."""


@contextmanager
def watched_jobs(session: SparkSession) -> Iterator[None]:
    """Label the jobs that this thread starts in the block with the current work, and log their progress.

    In Spark's UI, a classic session shows the label as job group and description. A group set by the caller is kept, so
    that a notebook's button or the end of a streaming query cancels its own jobs; the run's name is still a tag of the
    jobs. A Connect session has only tags.

    Raises:
        CancelledError: the jobs were cancelled.
    """
    label = current_label()
    watched = _operations(session, label) if is_connect(session) else _jobs(session, label)
    with watched:
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            with suppress(Exception):
                cancel(session, label.group)
            raise
        except Exception as error:
            if not _was_cancelled(error):
                raise
            raise CancelledError(
                f"{label.text}: its Spark jobs were cancelled; what was committed before stays, and nothing else was "
                "changed; run it again to have it done"
            ) from error


def _was_cancelled(error: BaseException) -> bool:
    """Whether an error or its cause states that the work was cancelled."""
    causes = (error, error.__cause__)
    return any(_CANCELLED.search(str(cause)) is not None for cause in causes)


def cancel(session: SparkSession, group: str) -> None:
    """Cancel all jobs with the tag of a run, from any thread."""
    if is_connect(session):
        session.interruptTag(_tag(group))
    else:
        session.sparkContext.cancelJobsWithTag(_tag(group))


@contextmanager
def _jobs(session: SparkSession, label: Label) -> Iterator[None]:
    """The jobs of a block in a classic session."""
    context, tag = session.sparkContext, _tag(label.group)
    before = {name: context.getLocalProperty(name) for name in (_GROUP, _DESCRIPTION)}
    is_new = tag not in context.getJobTags()
    group = before[_GROUP] or label.group
    ended = threading.Event()
    watching = threading.Thread(target=_poll, args=(context, group, label, ended), daemon=True)
    try:
        context.setLocalProperty(_GROUP, group)
        context.setLocalProperty(_DESCRIPTION, label.text)
        context.addJobTag(tag)
        watching.start()
        yield
    finally:
        ended.set()
        # A session that died meanwhile has nothing to restore, and raises its own error.
        with suppress(Exception):
            if is_new:
                context.removeJobTag(tag)
            for name, value in before.items():
                context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None removes it


def _poll(context: SparkContext, group: str, label: Label, ended: threading.Event) -> None:
    """Log the progress of a group's jobs until the work ends; errors of a stopped session are ignored."""
    while not ended.wait(EVERY_S):
        with suppress(Exception):
            _log(label, _stages(context.statusTracker(), group))


def _stages(tracker: StatusTracker, group: str) -> list[tuple[int, int]]:
    """The number of completed tasks, and of all tasks, in each stage of a group's running jobs."""
    jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(group)))
    stages = [stage for job in jobs if job.status == "RUNNING" for stage in job.stageIds]
    known = filter(None, map(tracker.getStageInfo, stages))
    return [(stage.numCompletedTasks, stage.numTasks) for stage in known]


@contextmanager
def _operations(session: SparkSession, label: Label) -> Iterator[None]:
    """The operations of a block in a Connect session."""
    caller, logged_at = threading.get_ident(), time.monotonic()

    def progress(*, stages: Sequence[Any] | None, **_: Any) -> None:
        nonlocal logged_at
        # A session notifies all its handlers of each operation, in the thread that waits for it.
        if threading.get_ident() == caller and time.monotonic() - logged_at >= EVERY_S:
            logged_at = time.monotonic()
            _log(label, [(stage.num_completed_tasks, stage.num_tasks) for stage in stages or ()])

    handler = cast("ProgressHandler", progress)
    new = {_tag(label.group), _tag(label.text)} - session.getTags()
    try:
        for tag in new:
            session.addTag(tag)
        session.registerProgressHandler(handler)
        yield
    finally:
        session.removeProgressHandler(handler)
        for tag in new:
            session.removeTag(tag)


def _log(label: Label, stages: Sequence[tuple[int, int]]) -> None:
    """Log the completed tasks out of all tasks of the stages."""
    if stages:
        done, tasks = map(sum, zip(*stages, strict=True))
        # The logged work belongs to another thread.
        with labelled(stream=label.stream, run=label.run):
            log_progress(label.text, done, tasks, "tasks")


def _tag(text: str) -> str:
    """A text in the form of a valid Spark tag."""
    return text.replace(",", ";")
