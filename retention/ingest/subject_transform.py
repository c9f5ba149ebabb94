"""Renaming subjects on their way in, as a stream's `subject_transform` or the transforms of an origin say."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from retention.config import StreamConfig
from retention.config.nested import SubjectTransform
from retention.errors import RefusedError

_WILDCARD = re.compile(r"\$(\d+)|\{\{\s*wildcard\(\s*(\d+)\s*\)\s*\}\}", re.IGNORECASE)
_Mapping = tuple[re.Pattern[str], list[str | int]]


def transform_subjects(subjects: pa.ChunkedArray, config: StreamConfig) -> pa.ChunkedArray:
    """The subjects under which messages are stored; those that the transform's source does not match stay.

    Raises:
        RefusedError: the destination uses a function other than `wildcard`.
    """
    transform = config.subject_transform
    return subjects if transform is None else mapped(config.name, subjects, [transform])


def mapped(
    stream: str, subjects: pa.ChunkedArray, transforms: Sequence[SubjectTransform]
) -> pa.ChunkedArray:
    """Subjects as the first transform that matches renames them; without a destination it only selects.

    Raises:
        RefusedError: a destination uses a function other than `wildcard`.
    """
    mappings = [
        (_pattern(transform.src or ">"), _template(stream, transform.src, transform.dest))
        for transform in transforms
        if transform.dest
    ]
    encoded = subjects.combine_chunks().dictionary_encode()
    names = [_rename(name, mappings) for name in encoded.dictionary.to_pylist()]
    return pa.chunked_array([pa.array(names, pa.string()).take(encoded.indices)])


def _rename(subject: str, mappings: Sequence[_Mapping]) -> str:
    for pattern, template in mappings:
        match = pattern.fullmatch(subject)
        if match:
            return ".".join(part if isinstance(part, str) else match[part] for part in template)
    return subject


def _pattern(source: str) -> re.Pattern[str]:
    wildcards = {"*": r"([^.]+)", ">": r"(.+)"}
    parts = (wildcards.get(part) or re.escape(part) for part in source.split("."))
    return re.compile(r"\.".join(parts), re.DOTALL)


def _template(stream: str, source: str, destination: str) -> list[str | int]:
    """The destination's parts: text, or the number of the source's wildcard that stands there."""
    given = [part for part in (source or ">").split(".") if part in ("*", ">")]
    template: list[str | int] = []
    for part in destination.split("."):
        named = _WILDCARD.fullmatch(part)
        if named and 1 <= int(named[1] or named[2]) <= given.count("*"):
            template.append(int(named[1] or named[2]))
        elif part == ">" and given[-1:] == [">"]:
            template.append(len(given))
        elif part in ("*", ">") or "{{" in part or named:
            raise RefusedError(
                f"{stream}: the subject transform to {destination!r} cannot be carried out here: {part} is more than "
                "a wildcard of its source; nothing was written; rename the subjects before publishing"
            )
        else:
            template.append(part)
    return template
