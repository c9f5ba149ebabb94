"""OpenLineage events of a job: the start and end of each stream, sent by OpenLineage's own client."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from retention import __version__
from retention.core.outcomes import LOGGER
from retention.core.subjects import path_name
from retention.core.units import SECOND, format_instant
from retention.errors import UsageError
from retention.storage import files
from retention.storage.places import S3

_PRODUCER = f"urn:lake-retention:{__version__}"
_ENDS = {"stream_done": "COMPLETE", "stream_left": "ABORT", "stream_failed": "FAIL"}
_PARENT_PARTS = 3


@contextmanager
def sending_lineage(command: str, warehouse: str, note: Callable[[str], None]) -> Iterator[None]:
    """Send events for each stream that the block processes: START, then COMPLETE, FAIL, or ABORT if a budget skips it.

    An event that cannot be sent stops no run: the failure is reported once, and no further event is sent.

    Args:
        command: the job; in OpenLineage each of its streams has a job of its own, such as `retain.ORDERS`.
        warehouse: the location of the streams.
        note: receives a sentence for the user.

    Raises:
        UsageError: the client is not installed, or its configuration is invalid.
    """
    sender = _Sender(command, warehouse, note)
    logger = logging.getLogger(LOGGER)
    level, propagate = logger.level, logger.propagate
    # Without JSON logs there is no other handler, and errors are reported at the end.
    logger.propagate = logger.isEnabledFor(logging.INFO)
    logger.setLevel(logging.INFO)
    logger.addHandler(sender)
    try:
        yield
    finally:
        logger.removeHandler(sender)
        logger.setLevel(level)
        logger.propagate = propagate
        sender.finish()


class _Sender(logging.Handler):
    """A handler that sends an event for each record about the start or end of a stream."""

    def __init__(self, command: str, warehouse: str, note: Callable[[str], None]) -> None:
        super().__init__()
        try:
            from openlineage.client import OpenLineageClient
        except ImportError as error:
            raise UsageError(
                "OpenLineage's client is not installed here: pip install 'lake-retention[lineage]', or leave out "
                "--openlineage"
            ) from error
        try:
            self._client = OpenLineageClient()
        except Exception as error:  # any error of its transports about their configuration
            raise UsageError(
                f"OpenLineage's client cannot be configured: {error}; correct openlineage.yml or the OPENLINEAGE_ "
                "variables, or leave out --openlineage"
            ) from error
        self._command = command
        self._warehouse = warehouse
        self._note = note
        self._runs: dict[str, str] = {}
        self._is_broken = False

    def emit(self, record: logging.LogRecord) -> None:
        about: dict[str, Any] = getattr(record, "about", {})
        if self._is_broken or not {"event", "stream"} <= about.keys():
            return
        time = format_instant(int(record.created * SECOND))
        try:
            self._client.emit(self._event(about, time, record.getMessage()))
        except Exception as error:  # a lineage server that is down must not stop a run
            self._is_broken = True
            self._note(
                f"OpenLineage events cannot be sent; the run continues without them: {error}"
            )

    def finish(self) -> None:
        """End interrupted streams, and wait for pending events."""
        for stream in list(self._runs):
            about = {"about": {"event": "stream_left", "stream": stream}}
            self.handle(logging.makeLogRecord(about))
        if not self._is_broken:
            self._client.close(timeout=10.0)

    def _event(self, about: dict[str, Any], time: str, message: str) -> Any:
        from openlineage.client.event_v2 import Job, OutputDataset, Run, RunEvent, RunState
        from openlineage.client.facet_v2 import dataset_version_dataset, job_type_job
        from openlineage.client.uuid import generate_new_uuid

        stream = about["stream"]
        if about["event"] == "stream_begun":
            self._runs[stream] = str(generate_new_uuid())
        kind = _ENDS.get(about["event"], "START")
        run = self._runs[stream] if kind == "START" else self._runs.pop(stream)
        facets: dict[str, Any] = {}
        if about.get("version_after", -1) >= 0:
            version = dataset_version_dataset.DatasetVersionDatasetFacet(
                datasetVersion=str(about["version_after"])
            )
            facets["version"] = version
        namespace, name = dataset_name(self._warehouse, stream)
        return RunEvent(
            eventType=RunState[kind],
            eventTime=time,
            producer=_PRODUCER,
            run=Run(runId=run, facets=_run_facets(kind, message)),
            job=Job(
                namespace=os.environ.get("OPENLINEAGE_NAMESPACE", "default"),
                name=f"{self._command}.{stream}",
                facets={
                    "jobType": job_type_job.JobTypeJobFacet(
                        processingType="BATCH", integration="LAKE_RETENTION", jobType="JOB"
                    )
                },
            ),
            inputs=[],
            outputs=[
                OutputDataset(
                    namespace=namespace,
                    name=name,
                    facets=facets,
                    outputFacets=_output_facets(about),
                )
            ],
        )


def dataset_name(warehouse: str, stream: str) -> tuple[str, str]:
    """The namespace and name of a stream's table, by OpenLineage's naming for files and S3."""
    place = files.join(warehouse, "streams", path_name(stream), "messages")
    if place.startswith(S3):
        bucket, _, key = place.removeprefix(S3).partition("/")
        return f"{S3}{bucket}", key
    return "file", place


def _output_facets(about: Mapping[str, Any]) -> dict[str, Any]:
    """The statistics of a run's writes to its table, if its report has them."""
    from openlineage.client.facet_v2 import output_statistics_output_dataset

    written = {"size": about.get("bytes_written"), "fileCount": about.get("files_after")}
    known = {name: number for name, number in written.items() if number is not None}
    if not known:
        return {}
    kind = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
    return {"outputStatistics": kind(**known)}


def _run_facets(kind: str, message: str) -> dict[str, Any]:
    """The error of a failed run, and the parent run, if `OPENLINEAGE_PARENT_ID` names it."""
    from openlineage.client.facet_v2 import error_message_run, parent_run

    facets: dict[str, Any] = {}
    if kind == "FAIL":
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=message, programmingLanguage="PYTHON"
        )
    parent = os.environ.get("OPENLINEAGE_PARENT_ID", "").rsplit("/", _PARENT_PARTS - 1)
    if len(parent) == _PARENT_PARTS:
        namespace, name, run = parent
        facets["parent"] = parent_run.ParentRunFacet(
            run=parent_run.Run(runId=run), job=parent_run.Job(namespace=namespace, name=name)
        )
    return facets
