"""Failures of Spark to read a source's file: the file and the reason, parsed from Spark's message."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

_READING = re.compile(
    r"\[FAILED_READ_FILE\.(?P<kind>\w+)\] (?:Encountered error while reading file|.*?file) "
    r"(?P<file>\w+:/.*?)(?:\. | *(?:SQLSTATE|\n)|$)"
)
_CAUSE = re.compile(r"Caused by: [\w.$]+(?:Exception|Error): (?P<why>[^\n]+)")
_STATE = re.compile(r"\s*SQLSTATE: \w+$")
_MISSING = ("FILE_NOT_EXIST",)


@dataclass(frozen=True)
class ReadFailure:
    """A file that Spark could not read."""

    place: str
    """The file, as a path or `s3://`."""
    why: str
    """Spark's reason; empty if it gives none."""
    is_missing: bool
    """Whether the file is missing."""


def read_failure(error: BaseException) -> ReadFailure | None:
    """The unreadable file of a Spark error; None if the error has another cause."""
    text = str(error)
    match = _READING.search(text)
    if match is None:
        return None
    causes = [_STATE.sub("", cause["why"]).strip() for cause in _CAUSE.finditer(text)]
    why = next((cause for cause in reversed(causes) if cause), "")
    missing = match["kind"] in _MISSING or "FileNotFoundException" in text
    return ReadFailure(_place(match["file"]), why, missing)


def _place(uri: str) -> str:
    place = unquote(uri.rstrip("."))
    if place.startswith("file:"):
        return "/" + place.removeprefix("file:").lstrip("/")
    return place.replace("s3a://", "s3://", 1)
