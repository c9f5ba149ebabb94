"""Renaming subjects on their way in, as a stream's `subject_transform` or the transforms of an origin say."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from retention.config import StreamConfig
from retention.config.nested import SubjectTransform
from retention.config.subject_mapping import function_of
from retention.errors import RefusedError
from retention.ingest.transform_functions import RANDOM, TokenMaker, token_maker


def transform_subjects(subjects: pa.ChunkedArray, config: StreamConfig) -> pa.ChunkedArray:
    """The subjects under which messages are stored; those that the transform's source does not match stay.

    Raises:
        RefusedError: a subject would be stored that is not UTF-8.
    """
    transform = config.subject_transform
    return subjects if transform is None else mapped(config.name, subjects, [transform])


def mapped(
    stream: str, subjects: pa.ChunkedArray, transforms: Sequence[SubjectTransform]
) -> pa.ChunkedArray:
    """Subjects as the first transform that matches renames them; without a destination it only selects.

    Raises:
        RefusedError: a subject would be stored that is not UTF-8.
    """
    mappings = [_Mapping.of(transform) for transform in transforms if transform.dest]
    rename = _renaming(stream, mappings)
    if any(mapping.draws for mapping in mappings):  # anew for each message
        return pa.chunked_array([pa.array(map(rename, subjects.to_pylist()), pa.string())])
    encoded = subjects.combine_chunks().dictionary_encode()
    names = [rename(name) for name in encoded.dictionary.to_pylist()]
    return pa.chunked_array([pa.array(names, pa.string()).take(encoded.indices)])


@dataclass(frozen=True)
class _Mapping:
    """A transform, ready to be carried out."""

    pattern: re.Pattern[str]
    """The pattern of the subjects that it renames."""
    makers: Sequence[TokenMaker]
    """The makers of the destination's tokens, without its last `>`."""
    rest: int | None
    """The place from which on a subject's tokens are kept, if the destination ends in `>`."""
    draws: bool
    """Whether a token is drawn at random."""

    @classmethod
    def of(cls, transform: SubjectTransform) -> _Mapping:
        source, destination = (transform.src or ">").split("."), transform.dest.split(".")
        rest = len(source) - 1 if destination[-1] == ">" else None
        named = destination if rest is None else destination[:-1]
        draws = any((function_of(token) or ("",))[0] == RANDOM for token in named)
        makers = [token_maker(token, source) for token in named]
        return cls(_pattern(source), makers, rest, draws)

    def apply(self, subject: str) -> bytes:
        tokens = subject.encode().split(b".")
        kept = [] if self.rest is None else tokens[self.rest :]
        return b".".join([*(make(tokens) for make in self.makers), *kept])


def _renaming(stream: str, mappings: Sequence[_Mapping]) -> Callable[[str], str]:
    def rename(subject: str) -> str:
        for mapping in mappings:
            if mapping.pattern.fullmatch(subject):
                return _text(stream, subject, mapping.apply(subject))
        return subject

    return rename


def _text(stream: str, subject: str, renamed: bytes) -> str:
    try:
        return renamed.decode()
    except UnicodeDecodeError as error:
        raise RefusedError(
            f"{stream}: the subject transform makes {renamed!r} of {subject!r}, which is not UTF-8 (it counts bytes), "
            "and a table cannot hold that; nothing was written; rename the subject before publishing"
        ) from error


def _pattern(source: Sequence[str]) -> re.Pattern[str]:
    wildcards = {"*": r"([^.]+)", ">": r"(.+)"}
    parts = (wildcards.get(part) or re.escape(part) for part in source)
    return re.compile(r"\.".join(parts), re.DOTALL)
