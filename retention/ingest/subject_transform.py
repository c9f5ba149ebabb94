"""Renaming the subjects of incoming messages, by a stream's `subject_transform` or an origin's transforms."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.config import StreamConfig
from retention.config.nested import SubjectTransform
from retention.config.subject_mapping import function_of
from retention.errors import RefusedError
from retention.ingest.transform_functions import RANDOM, TokenMaker, token_maker
from retention.ingest.validation import Validation

_CUT = "which is not UTF-8 (it counts bytes), and a table cannot hold that"


def transform_subjects(subjects: pa.ChunkedArray, config: StreamConfig) -> pa.ChunkedArray:
    """The subjects under which messages are stored; those that the transform's source does not match are unchanged.

    Raises:
        RefusedError: a subject to be stored is not UTF-8.
    """
    transform = config.subject_transform
    return subjects if transform is None else mapped(config.name, subjects, [transform])


def publishable_subjects(
    screen: Validation, subjects: pa.ChunkedArray, config: StreamConfig
) -> pa.ChunkedArray:
    """The subjects as `transform_subjects` makes them; if one would not be UTF-8, only its message is refused."""
    if config.subject_transform is None:
        return subjects
    renamed = _renamed(subjects, [config.subject_transform])
    for wrong in _not_utf8(renamed):
        mask = np.asarray(pc.equal(renamed, wrong))
        screen.refuse(mask, f"the subject transform makes {wrong!r} of its subject, {_CUT}")
        renamed = pc.if_else(pa.array(mask), subjects.cast(pa.binary()), renamed)
    return renamed.cast(pa.string())


def mapped(
    stream: str, subjects: pa.ChunkedArray, transforms: Sequence[SubjectTransform]
) -> pa.ChunkedArray:
    """Subjects renamed by the first matching transform; a transform without a destination only selects.

    Raises:
        RefusedError: a subject to be stored is not UTF-8.
    """
    renamed = _renamed(subjects, transforms)
    for wrong in _not_utf8(renamed):
        subject = subjects[pc.index(renamed, wrong).as_py()].as_py()
        raise RefusedError(
            f"{stream}: the subject transform makes {wrong!r} of {subject!r}, {_CUT}; nothing was written; rename the "
            "subject before publishing"
        )
    return renamed.cast(pa.string())


def _renamed(subjects: pa.ChunkedArray, transforms: Sequence[SubjectTransform]) -> pa.ChunkedArray:
    """Subjects renamed by the first matching transform, in bytes; some may not be UTF-8."""
    mappings = [_Mapping.of(transform) for transform in transforms if transform.dest]
    rename = _renaming(mappings)
    if any(mapping.draws for mapping in mappings):  # a new draw for each message
        return pa.chunked_array([pa.array(map(rename, subjects.to_pylist()), pa.binary())])
    encoded = subjects.combine_chunks().dictionary_encode()
    names = [rename(name) for name in encoded.dictionary.to_pylist()]
    return pa.chunked_array([pa.array(names, pa.binary()).take(encoded.indices)])


def _not_utf8(names: pa.ChunkedArray) -> Iterator[bytes]:
    """The distinct names that are not UTF-8."""
    for name in names.unique().to_pylist():
        try:
            name.decode()
        except UnicodeDecodeError:
            yield name


@dataclass(frozen=True)
class _Mapping:
    """A compiled transform."""

    pattern: re.Pattern[str]
    """The pattern of the subjects that it renames."""
    makers: Sequence[TokenMaker]
    """The makers of the destination's tokens, without its last `>`."""
    rest: int | None
    """The index from which a subject's tokens are kept, if the destination ends in `>`."""
    draws: bool
    """Whether a token is random."""

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


def _renaming(mappings: Sequence[_Mapping]) -> Callable[[str], bytes]:
    def rename(subject: str) -> bytes:
        for mapping in mappings:
            if mapping.pattern.fullmatch(subject):
                return mapping.apply(subject)
        return subject.encode()

    return rename


def _pattern(source: Sequence[str]) -> re.Pattern[str]:
    wildcards = {"*": r"([^.]+)", ">": r"(.+)"}
    parts = (wildcards.get(part) or re.escape(part) for part in source)
    return re.compile(r"\.".join(parts), re.DOTALL)
