"""The report of a run on one stream: its numbers as data and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from retention.core.json_object import JsonObject
from retention.storage.outputs import OutputKind, begins

FORMAT_VERSION = 1
KIND = "retention report"
REPORT_FILE = OutputKind(
    "a job's report",
    # Earlier versions wrote no kind, and no version for the jobs `doctor`, `fold` and `ingest`.
    begins(
        rf'\s*\{{\s*(?:"format_version":\s*\d+,\s*"(?:kind":\s*"{KIND}"|as_of_ns"|error")'
        r'|"findings":|"logs":|"stream":\s*"[^"]*",\s*"source":)'
    ),
)
"""The file of `--report-file`."""


@dataclass(frozen=True)
class RunReport:
    """The outcome of one run on one stream; `as_json` has the keys of the command contract."""

    run: str
    stream: str
    plan_id: str
    as_of_ns: int
    removed_messages: int
    removed_bytes: int
    by_rule: Mapping[str, int]
    segments: Mapping[str, int]
    files_read: int
    bytes_read: int
    bytes_written: int
    seconds: float
    version_before: int
    version_after: int
    markers: int = 0
    deleted_consumers: Sequence[str] = ()
    """Names of the consumers that were deleted after too long without use."""
    held: Mapping[str, object] | None = None
    """Messages held back, or with `warn` those that would be, as in `Plan.held_as_json`; None without protection."""
    overdue: Mapping[str, Any] | None = None
    """Messages kept beyond `max_age`, as in `Overdue.as_json`; None if there are none."""
    archived: Mapping[str, Any] | None = None
    """Files copied to the archive before their removal, as in `Archived.as_json`; None if there are none."""
    dropped: Mapping[str, Any] | None = None
    """The drop of the stream, as in `Dropped.as_json`; None if it is not dropped."""
    guards: Sequence[Mapping[str, object]] | None = None
    """Guards with exceeded limits, as in `GuardFinding.as_json`: they warn, or were lifted; None if there are none."""
    kept_by_holds: Mapping[str, int] | None = None
    """Legal hold → the messages that it kept; None if no legal hold is in effect."""
    expired_holds: Sequence[str] | None = None
    """The legal holds whose time was over when the run began, so that it is the first that ignores them; None if there
    are none."""
    left: Mapping[str, Any] | None = None
    """Lag of a stream skipped for the budget, and the exhausted bound; None if the stream was processed."""
    spent_by: str | None = None
    """The earlier run in effect that spent the same approval, so nothing was done now; None if this is not a retry."""
    superseded_by: Mapping[str, Any] | None = None
    """The earlier pass at a later instant, so that nothing was done: `as_of_ns`, `run`; None if there is none."""
    error: Mapping[str, Any] | None = None
    """The error of a failed run: `exit_code` and `message`."""

    @classmethod
    def of_nothing(cls, stream: str, as_of_ns: int) -> RunReport:
        """The report of a stream without a run."""
        segments = {"dropped": 0, "rewritten": 0, "kept": 0}
        return cls("", stream, "", as_of_ns, 0, 0, {}, segments, 0, 0, 0, 0.0, -1, -1)

    @property
    def is_left(self) -> bool:
        """Whether a budget deferred the stream to the next run."""
        return self.left is not None

    def as_json(self) -> JsonObject:
        """The report's entry in the JSON output."""
        optional = (
            "held",
            "overdue",
            "archived",
            "dropped",
            "guards",
            "kept_by_holds",
            "expired_holds",
            "left",
            "spent_by",
            "superseded_by",
            "error",
        )
        entry = {
            name: value for name, value in vars(self).items() if name not in ("as_of_ns", *optional)
        }
        entry["deleted_consumers"] = list(self.deleted_consumers)
        present = {name: value for name in optional if (value := getattr(self, name)) is not None}
        return entry | {name: copy(value) for name, value in present.items()}


def document(
    as_of_ns: int,
    entries: Sequence[Mapping[str, object]],
    tables: Sequence[Mapping[str, object]] | None = None,
) -> dict[str, Any]:
    """The JSON document of `plan` and `apply`; without `tables` if the configuration lists none."""
    of_tables = {} if tables is None else {"tables": list(tables)}
    return {
        "format_version": FORMAT_VERSION,
        "as_of_ns": as_of_ns,
        "streams": list(entries),
    } | of_tables
