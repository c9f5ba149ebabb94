"""The ending of a job: its report, its exit code, and whether a retry may help."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUSY, _KILLED, _TERMINATED = 75, 137, 143
_DAMAGED = 6
_SPARK_CODE = re.compile(r"Error code is: (-?\d+)")


@dataclass(frozen=True)
class Ending:
    """The exit code of a job, and its report, if it wrote one."""

    code: int
    report: Mapping[str, Any] | None

    @property
    def is_to_be_tried_again(self) -> bool:
        """Whether the stream was busy or the job was terminated from outside: 75, 137, 143, or a signal (negative)."""
        return self.code < 0 or self.code in (BUSY, _KILLED, _TERMINATED)

    @property
    def entry(self) -> Mapping[str, Any]:
        """The report's entry of the only stream or table; empty if there is none."""
        report = self.report or {}
        entries = report.get("streams") or report.get("tables") or [{}]
        return entries[0]

    @property
    def sentence(self) -> str:
        """The job's sentence about a failure."""
        error = (self.report or {}).get("error") or error_of(self.entry)
        if error:
            return str(error["message"])
        if self.report is not None:
            return "the job failed outside its work on streams; its log is above"
        return "the job was ended from outside, or did not start; its log is above"


def error_of(entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The error in a report's entry of a stream, or the first damage that a verification found; None: neither."""
    error: Mapping[str, Any] | None = entry.get("error")
    if error or not entry.get("damages"):
        return error
    damages = entry["damages"]
    first, others = damages[0], len(damages) - 1
    more = f"; {others:,} more, which the report lists" if others else ""
    sentence = f"{first['check']}: {first['subject']}: {first['detail']}; {first['remedy']}{more}"
    return {"message": sentence, "exit_code": _DAMAGED}


def read_ending(code: int, path: Path) -> Ending:
    """The ending of a job, with its report at a path if it wrote one."""
    try:
        return Ending(code, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return Ending(code, None)


def code_of_spark(error: BaseException) -> int:
    """The exit code named in an error of `spark-submit`; 1 if there is none."""
    code = _SPARK_CODE.search(str(error))
    return int(code[1]) if code else 1
