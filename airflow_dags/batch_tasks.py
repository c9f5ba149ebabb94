"""Tasks of a batch: each runs one job on many streams; a stream that needs a person's action has its own task."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_dags.assets import update_assets
from airflow_dags.batches import Batch
from airflow_dags.engine import Engine
from airflow_dags.files import report_path
from airflow_dags.record import (
    Failure,
    Record,
    first_failures,
    has_failed,
    lines_of,
    read_record,
    totals,
)
from airflow_dags.running import (
    JobTask,
    ProcessOperator,
    fail,
    run_parameters,
    say_last,
    skip_task,
)
from airflow_dags.steps import MAINTAIN, PLAN, RECLAIM, SYNC_ALL, Counts, Past, Step, is_nothing
from airflow_dags.tasks import beside, counts_of

log = logging.getLogger(__name__)

STEPS = (MAINTAIN, PLAN, RECLAIM)
"""The steps of a batch; only streams that a pass refused to change are planned, or all streams in a dry run."""
COUNTS = "counts"
"""XCom key of these tasks: the numbers of a step."""


class BatchTask(JobTask[list[Counts]]):
    """A step of a batch: one job on many streams.

    Failed streams and streams that need an approval leave the batch. Busy streams, and copies whose
    server does not answer, are retried without the others.
    """

    batch: Batch

    def work(self, context: Context) -> list[Counts]:
        """Run the step's job; returns the plans that need an approval, each with its stream."""
        params = run_parameters(self.batch.id, context)
        chosen = self._chosen(params, context)
        rests_on_pass = self.step in (PLAN, RECLAIM) and not params.get("dry_run")
        applied = self._applied(context) if rests_on_pass else None
        streams = chosen if applied is None else self._left(applied, params, context)
        arguments = self.step.arguments(self._past(params, applied, context))
        record = self._record(streams, arguments, context)
        ti = context["ti"]
        is_over = not record.passing(self.step) or ti.try_number > ti.max_tries
        record.write(self._kept(self.step, context), is_over=is_over)
        return self._end(record, params, context, is_over=is_over)

    def _chosen(self, params: Mapping[str, Any], context: Context) -> list[str]:
        """The streams of the run; the task is skipped if there are none, or if the step does not apply to them."""
        chosen = params.get("streams")
        streams = [name for name in self.batch.streams if not chosen or name in chosen]
        if not streams:
            skip_task(context, f"{self.batch.id} has none of the streams of this run")
        if params.get("dry_run") and self.step is not PLAN:
            skip_task(context, "a dry run plans and does nothing else")
        if self.step is SYNC_ALL:
            copies = [name for name in streams if name in self.batch.copies]
            return copies or skip_task(context, f"{self.batch.id}: the run chooses no copies")
        return self._in_step(streams, params, context)

    def _in_step(
        self, streams: list[str], params: Mapping[str, Any], context: Context
    ) -> list[str]:
        """The streams without a failed sync; the task is skipped if there are none."""
        synced = read_record(self._kept(SYNC_ALL, context)) if self.batch.copies else None
        if synced is None:
            return streams
        failed = {failure["stream"] for failure in synced.failures(SYNC_ALL, params)}
        left = [name for name in streams if name not in failed]
        return left or skip_task(context, f"{self.batch.id}: `sync` has left no stream to work on")

    def _left(self, applied: Record, params: Mapping[str, Any], context: Context) -> list[str]:
        """The streams that the pass leaves to a step; the task is skipped if there are none."""
        if self.step is PLAN:
            return applied.refused or skip_task(context, f"{self.batch.id}: nothing was refused")
        left = applied.remaining(MAINTAIN, params)
        return left or skip_task(context, f"{self.batch.id}: `apply` has left no stream to work on")

    def _past(self, params: Mapping[str, Any], applied: Record | None, context: Context) -> Past:
        """The input of the step: a pass uses the instant of the run, later steps that of the pass."""
        if self.step is MAINTAIN:
            return Past(params, {"as_of_ns": run_instant(context)})
        return Past(params if applied is None else {**params, "as_of": str(applied.as_of_ns)})

    def _applied(self, context: Context) -> Record:
        """The record of the batch's pass."""
        record = read_record(self._kept(MAINTAIN, context))
        if record is None:
            raise AirflowFailException(
                f"{self.batch.id}: has no record of `apply`; clear the task `apply` of this batch"
            )
        return record

    def _record(self, streams: list[str], arguments: list[str], context: Context) -> Record:
        """Run the job on the streams not done by an earlier try; returns the record of all."""
        before = read_record(self._kept(self.step, context))
        if before is None or before.is_over or before.arguments != arguments:
            before = None
            self._forget(context)
        settled = {} if before is None else before.settled(self.step)
        left = [name for name in streams if name not in settled]
        ending, path = self.run_job(self.batch.id, left, arguments, context)
        report = ending.report or {}
        listed = [*report.get("streams", ()), *report.get("tables", ())]
        entries = {entry.get("stream") or entry["table"]: dict(entry) for entry in listed}
        for compaction in report.get("compactions", ()):
            entries[compaction["stream"]]["compaction"] = compaction
        if "as_of_ns" not in report or (ending.code and not any(map(has_failed, entries.values()))):
            fail(self.step, ending)
        return Record(arguments, report["as_of_ns"], str(path), streams, {**settled, **entries})

    def _end(
        self, record: Record, params: Mapping[str, Any], context: Context, *, is_over: bool
    ) -> list[Counts]:
        step, ti = self.step, context["ti"]
        for line in lines_of(step, record, params):
            log.info("%s", line)
        counts = {
            name: counts_of(self.engine, step, entry, record.as_of_ns, record.report)
            for name, entry in record.entries.items()
            if not entry.get("error")
        }
        changed = {name: each for name, each in counts.items() if not is_nothing(step, each)}
        ti.xcom_push(key=COUNTS, value=totals(step, record, params, changed))
        if not is_over:
            first, *others = record.passing(step)
            raise AirflowException(
                f"{self.batch.id}: {1 + len(others):,} of {len(record.streams):,} streams are tried again without the "
                f"others; the first: {first['sentence']} (exit code {first['exit_code']})"
            )
        for name, each in changed.items():
            if each.get("messages") or each.get("markers") or each.get("rows"):
                update_assets(self.outlets, name, each, context)
        return [counts[name] | {"stream": name} for name in record.asking(step, params)]

    def _forget(self, context: Context) -> None:
        """Remove the records of this step and of dependent steps from before the task was cleared."""
        for step in STEPS if self.step is MAINTAIN else (self.step,):
            self._kept(step, context).unlink(missing_ok=True)

    def _kept(self, step: Step, context: Context) -> Any:
        return record_path(self.engine, step, self.task_id, context)


class BatchOperator(BatchTask, ProcessOperator):
    """A step of a batch by `<environment>/bin/python -m retention.jobs.…` on Airflow's worker."""

    def __init__(self, *, batch: Batch, **options: Any) -> None:
        super().__init__(**options)
        self.batch = batch


class OutcomesOperator(BaseOperator):  # type: ignore[misc]
    """Count the results of a batch's streams, and pass on the failures."""

    def __init__(self, *, engine: Engine, verify: Step | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.engine = engine
        self.steps = (SYNC_ALL, *STEPS) if verify is None else (SYNC_ALL, *STEPS, verify)

    def execute(self, context: Context) -> list[Failure]:
        """The failures, one for each failing task.

        Raises:
            AirflowSkipException: no step ran.
            AirflowFailException: a step ran, and its records are missing.
        """
        paths = {step: record_path(self.engine, step, self.task_id, context) for step in self.steps}
        records = {step: record for step, path in paths.items() if (record := read_record(path))}
        if not records:
            done = [beside(self.task_id, step.name) for step in self.steps]
            told = (context["ti"].xcom_pull(task_ids=task, key=COUNTS) for task in done)
            if any(counts is not None for counts in told):
                raise AirflowFailException(
                    f"{self.engine.reports}: no longer has this batch's records, so the failed streams are unknown; "
                    "see the logs of its tasks"
                )
            skip_task(context, "nothing was done with this batch")
        params = context["params"]
        asked = records[PLAN].asking(PLAN, params) if PLAN in records else []
        failures: dict[str, Failure] = {}
        for step, record in records.items():
            failed = [each for each in record.failures(step, params) if each["stream"] not in asked]
            noun = "stream" if len(record.streams) == 1 else "streams"
            log.info("%s: %d %s, %d failed", step.name, len(record.streams), noun, len(failed))
            # The plan of a refused stream repeats its refusal.
            failures = {each["stream"]: each for each in failed} | failures
        for failure in failures.values():
            log.info("%s", failure["sentence"])
        return first_failures(list(failures.values()))


class FailedOperator(BaseOperator):  # type: ignore[misc]
    """Fail with the sentence of a stream that failed in a batch."""

    def __init__(self, *, failure: Failure, **options: Any) -> None:
        super().__init__(**options)
        self.failure = failure

    def execute(self, context: Context) -> None:
        """Fail.

        Raises:
            AirflowFailException: always, as the stream's own task would.
        """
        error = AirflowFailException(
            f"{self.failure['sentence']} (exit code {self.failure['exit_code']})"
        )
        say_last(error)
        raise error


def run_instant(context: Context) -> int:
    """The start of a run, nanoseconds since the epoch; the same in each try of its tasks."""
    now = datetime.now(UTC)  # noqa: TID251  (a task is an edge, as a job is)
    # Airflow's clock may be ahead of this machine's.
    began = min(context["dag_run"].start_date or now, now)
    return (began - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1) * 1000


def record_path(engine: Engine, step: Step, task_id: str, context: Context) -> Any:
    """The path of the record of a step of the same batch."""
    return report_path(engine, context["ti"], beside(task_id, step.name), "record.json")
