"""Renaming subjects on their way in, as a stream's `subject_transform` says."""

from __future__ import annotations

import re

import pyarrow as pa

from retention.config import StreamConfig
from retention.errors import RefusedError

_WILDCARD = re.compile(r"\$(\d+)|\{\{\s*wildcard\(\s*(\d+)\s*\)\s*\}\}", re.IGNORECASE)


def renamed(subjects: pa.ChunkedArray, config: StreamConfig) -> pa.ChunkedArray:
    """The subjects under which messages are stored; those that the transform's source does not match stay.

    Raises:
        RefusedError: the destination uses a function other than `wildcard`.
    """
    transform = config.subject_transform
    if transform is None:
        return subjects
    pattern, template = (
        _pattern(transform.src or ">"),
        _template(config.name, transform.src, transform.dest),
    )
    encoded = subjects.combine_chunks().dictionary_encode()
    names = [_rename(name, pattern, template) for name in encoded.dictionary.to_pylist()]
    return pa.chunked_array([pa.array(names, pa.string()).take(encoded.indices)])


def _rename(subject: str, pattern: re.Pattern[str], template: list[str | int]) -> str:
    found = pattern.fullmatch(subject)
    if not found:
        return subject
    return ".".join(part if isinstance(part, str) else found[part] for part in template)


def _pattern(source: str) -> re.Pattern[str]:
    wildcards = {"*": r"([^.]+)", ">": r"(.+)"}
    parts = (wildcards.get(part) or re.escape(part) for part in source.split("."))
    return re.compile(r"\.".join(parts), re.DOTALL)


def _template(stream: str, source: str, destination: str) -> list[str | int]:
    """The destination's parts: text, or the number of the source's wildcard that stands there."""
    given = [part for part in (source or ">").split(".") if part in ("*", ">")]
    template: list[str | int] = []
    for part in (destination or ">").split("."):
        named = _WILDCARD.fullmatch(part)
        if named and 1 <= int(named[1] or named[2]) <= given.count("*"):
            template.append(int(named[1] or named[2]))
        elif part == ">" and given[-1:] == [">"]:
            template.append(len(given))
        elif part in ("*", ">") or "{{" in part or named:
            raise RefusedError(
                f"{stream}: publish cannot carry out the subject transform to {destination!r}: {part} is more than "
                "a wildcard of its source; nothing was written; rename the subjects before publishing"
            )
        else:
            template.append(part)
    return template
