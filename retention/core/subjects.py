"""Subjects, filters and names: validity, matching, and encoding as path components."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from retention.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

MAX_SUBJECT_BYTES = 65_535
"""The longest subject: the record format keeps its length in two bytes."""
MAX_NAME_LENGTH = 255
TABLES = "_tables"
"""The directory, next to the streams, of Delta tables of streams with names that deltalake cannot open."""

_WHITESPACE = " \t\r\n\f"
_NOT_IN_NAMES = _WHITESPACE + ".*>/\\"
_BROKEN_TOKENS = r"^$|[ \t\r\n\f]|^\.|\.$|\.\."
_LITERAL_FORBIDDEN = _BROKEN_TOKENS + r"|(^|\.)[*>](\.|$)"
_FEW = 64
"""The number of subjects up to which Python is faster than an expression that RE2 compiles for each call."""
_SAFE_IN_PATHS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
_IN_PATHS = [chr(byte) if byte in _SAFE_IN_PATHS else f"%{byte:02X}" for byte in range(256)]


def is_valid_subject(subject: str) -> bool:
    """Whether a message can be published to `subject`: no empty token, no whitespace, no wildcard token."""
    return is_valid_filter(subject) and is_literal(subject)


def is_valid_filter(subject: str) -> bool:
    """Whether `subject` is a valid filter: a subject with `*` allowed as a token and `>` as the last token."""
    tokens = subject.split(".")
    return (
        len(subject.encode("utf-8", "surrogatepass")) <= MAX_SUBJECT_BYTES
        and all(tokens)
        and ">" not in tokens[:-1]
        and not any(space in subject for space in _WHITESPACE)
    )


def is_literal(subject: str) -> bool:
    """Whether no token is a wildcard; `*` and `>` inside a longer token are ordinary characters."""
    return not {"*", ">"} & set(subject.split("."))


def matches(subject_filter: str, subject: str) -> bool:
    """Whether a literal subject matches a filter: `*` is one token, a final `>` one or more."""
    return overlap(subject_filter, subject)


def overlap(first: str, second: str) -> bool:
    """Whether some subject matches both filters (the server's collision test)."""
    first_tokens, second_tokens = first.split("."), second.split(".")
    for token, other_token in zip(first_tokens, second_tokens, strict=False):
        if ">" in {token, other_token}:
            return True
        if "*" not in {token, other_token} and token != other_token:
            return False
    return len(first_tokens) == len(second_tokens)


def is_subset(inner: str, outer: str) -> bool:
    """Whether every subject that matches `inner` matches `outer` too."""
    inner_tokens, outer_tokens = inner.split("."), outer.split(".")
    for position, wanted in enumerate(outer_tokens):
        if wanted == ">":
            return len(inner_tokens) > position
        if position == len(inner_tokens) or inner_tokens[position] == ">":
            return False
        if wanted not in {"*", inner_tokens[position]}:
            return False
    return len(inner_tokens) == len(outer_tokens)


def to_regex(subject_filter: str) -> str:
    """The anchored regular expression (RE2 and Python) of the subjects that match a filter."""
    return f"^{_unanchored(subject_filter)}$"


def _unanchored(subject_filter: str) -> str:
    wildcards = {"*": r"[^.]+", ">": r"(?s:.+)"}
    tokens = subject_filter.split(".")
    return r"\.".join(wildcards.get(token) or re.escape(token) for token in tokens)


def valid_mask(subjects: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """`is_valid_subject` for a whole column; a null is not valid."""
    import pyarrow.compute as pc

    if len(subjects) <= _FEW:
        return _mask_of_few(subjects, is_valid_subject)
    broken = pc.match_substring_regex(subjects, _LITERAL_FORBIDDEN)
    too_long = pc.greater(pc.binary_length(subjects), MAX_SUBJECT_BYTES)
    return pc.fill_null(pc.invert(pc.or_(broken, too_long)), False)  # noqa: FBT003


def matching_mask(
    subjects: pa.Array | pa.ChunkedArray, filters: Iterable[str]
) -> pa.Array | pa.ChunkedArray:
    """A mask of the subjects of a column that match at least one of `filters`; a null matches none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = sorted(set(filters))
    if len(subjects) <= _FEW:
        any_of = [re.compile(_unanchored(pattern)).fullmatch for pattern in wanted]
        return _mask_of_few(subjects, lambda subject: any(match(subject) for match in any_of))
    literals = pa.array([literal for literal in wanted if is_literal(literal)], subjects.type)
    mask = pc.is_in(subjects, value_set=literals)
    patterns = [_unanchored(pattern) for pattern in wanted if not is_literal(pattern)]
    if not patterns:
        return mask
    matched = pc.match_substring_regex(subjects, f"^(?:{'|'.join(patterns)})$")
    return pc.or_(mask, pc.fill_null(matched, False))  # noqa: FBT003


def _mask_of_few(
    subjects: pa.Array | pa.ChunkedArray, accepts: Callable[[str], bool]
) -> pa.Array | pa.ChunkedArray:
    """A mask of the subjects that a function accepts, in the form of the column; a null is not accepted."""
    import pyarrow as pa

    mask = pa.array(
        [text is not None and accepts(text) for text in subjects.to_pylist()], pa.bool_()
    )
    return pa.chunked_array([mask]) if isinstance(subjects, pa.ChunkedArray) else mask


def is_valid_name(name: str) -> bool:
    r"""Whether a stream or consumer may have this name: ≤ 255 bytes, no space, none of `.*>/\`."""
    length = len(name.encode("utf-8", "surrogatepass"))
    return 0 < length <= MAX_NAME_LENGTH and not any(char in name for char in _NOT_IN_NAMES)


def path_name(name: str) -> str:
    """A name as a path component: every UTF-8 byte outside `A-Za-z0-9_-` is `%XX`."""
    return "".join([_IN_PATHS[byte] for byte in name.encode("utf-8")])


def name_of_path(component: str) -> str:
    """The name encoded in a path component.

    Raises:
        UsageError: `path_name` returns no such component.
    """
    try:
        name = unquote_to_bytes(component).decode("utf-8")
    except UnicodeDecodeError:
        name = ""
    if not name or path_name(name) != component:
        raise UsageError(
            f"{component!r} is not the path of a name: some byte is not written as %XX"
        )
    return name
