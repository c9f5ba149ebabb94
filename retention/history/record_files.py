"""The files of a run history: checked JSON, written atomically; damage is named with its remedy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from retention.errors import DamagedError
from retention.storage import files
from retention.storage.checksum import parse_json, verified, with_checksum
from retention.storage.crash_points import Step, reached

BEGUN_SUFFIX = ".begun.json"
DONE_SUFFIX = ".done.json"


def write_fields(location: str, fields: Mapping[str, object], step: Step) -> None:
    """Write a record with a checksum; durable at the step, which it reaches."""
    text = json.dumps(with_checksum(fields), indent=1, sort_keys=True, ensure_ascii=False)
    files.replace(location, text.encode())
    reached(step)


def read_fields(location: str) -> dict[str, Any] | None:
    """The fields of a record, without its checksum; None: there is none.

    Raises:
        DamagedError: the record is damaged.
    """
    content = files.read_bytes(location)
    if content is None:
        return None
    with damage_named(location):
        return verified(parse_json(content))


@contextmanager
def damage_named(location: str) -> Iterator[None]:
    """Name the location and the remedy if a block finds a record damaged.

    Raises:
        DamagedError: the block raised ValueError or AttributeError.
    """
    try:
        yield
    except (ValueError, AttributeError) as error:
        raise DamagedError(
            f"{location}: this record of the run history is damaged ({error}); nothing was changed; restore it "
            "from a copy, or remove it if the run no longer matters"
        ) from error


def unfinished_in(names: Sequence[str]) -> list[str]:
    """The runs with an intent and no outcome, oldest first, by the names of their files, ascending."""
    done = {name.removesuffix(DONE_SUFFIX) for name in names if name.endswith(DONE_SUFFIX)}
    begun = (name.removesuffix(BEGUN_SUFFIX) for name in names if name.endswith(BEGUN_SUFFIX))
    return [run for run in begun if run not in done]


def finished_in(names: Sequence[str]) -> list[str]:
    """The runs with an outcome, newest first, by the names of their files, ascending."""
    return [
        name.removesuffix(DONE_SUFFIX) for name in reversed(names) if name.endswith(DONE_SUFFIX)
    ]


def refuse_misplaced(run: str, name: str) -> None:
    """Refuse the record of another run than the one that its file is named after.

    Raises:
        ValueError: it is.
    """
    if name not in (run + BEGUN_SUFFIX, run + DONE_SUFFIX):
        raise ValueError(f"run is {run}, but this record is another's")
