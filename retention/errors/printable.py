"""Printable text: no character controls a terminal or reorders a line, and no location shows its credentials."""

from __future__ import annotations

import re

_STEERING = re.compile(
    # C0, DEL and C1; Arabic letter mark; marks, embeddings, overrides and isolates of direction; line separators;
    # zero-width characters and byte order marks; interlinear marks; unpaired surrogates.
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_SECRET_OF_LOCATION = re.compile(
    # A port is not a password, so `host:9000/path@x` is unchanged; a key without a password is hidden as well.
    r"(?P<scheme>\b(?:[A-Za-z][A-Za-z0-9+.-]*://|s3a?:/))(?:[^\s/@:?#'\"]*:(?!\d+(?:[/\s?]|$))[^\s'\"]*|[^\s/@:?#'\"]+)@"
)
_SECRET_OF_QUERY = re.compile(
    r"(?P<name>[?&;](?:[A-Za-z0-9_.-]*(?:secret|token|password|credential|signature|access_?key)[A-Za-z0-9_.-]*)=)"
    r"[^\s&;'\"]+",
    re.IGNORECASE,
)
_LONGEST_WORD, _LONGEST_LINE = 1024, 8192
"""The maximum number of characters of a word and of a line; the longest object-store key has 1,024 bytes."""
_LONGEST_LOCATION = 1 << 14
"""The characters at the ends of a long word that are searched for credentials: the search is quadratic."""
_LONG_WORD = re.compile(rf"\S{{{_LONGEST_WORD + 1},}}")
_LAST_C1 = 0x9F
_HIDDEN = "***"
NO_CREDENTIALS = (
    "a location must not contain credentials, which every reader of it would have; give them in the environment "
    "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) or as a profile"
)
"""The refusal of a location with credentials."""


def visible(text: str) -> str:
    r"""A text in which characters that would control a terminal or reorder a line are escaped: `\x1b`, `\u202e`."""
    return text if text.isascii() and text.isprintable() else _STEERING.sub(_written_out, text)


def visible_lines(text: str) -> str:
    """A text of several lines, each made `visible`; line breaks are kept."""
    return "\n".join(map(visible, text.split("\n")))


def visible_json(text: str) -> str:
    """JSON text in which characters that would control a terminal are JSON escapes: the values are equal."""
    return text if text.isascii() else "\n".join(map(_escaped, text.split("\n")))


def redacted(text: str) -> str:
    """A text with the credentials of locations (`s3://key:secret@bucket/…?token=…`) replaced by `***`."""
    if "://" not in text and ":/" not in text:
        return text
    hidden = _SECRET_OF_LOCATION.sub(rf"\g<scheme>{_HIDDEN}@", text)
    return _SECRET_OF_QUERY.sub(rf"\g<name>{_HIDDEN}", hidden)


def has_credentials(location: str) -> bool:
    """Whether a location names credentials."""
    return redacted(location) != location


def sentence(text: str) -> str:
    """The printable form of an error or of progress, in one line or several: redacted, visible, and of bounded length.

    Sentences repeat names, keys and values of any length: a long word or line is cut to its beginning and end, with its
    length between them.
    """
    short = _LONG_WORD.sub(_short_word, text) if len(text) > _LONGEST_WORD else text
    return "\n".join(map(_short_line, visible_lines(redacted(short)).split("\n")))


def _short_word(match: re.Match[str]) -> str:
    """A long word with its beginning and end, each redacted before it is cut."""
    word = match[0]
    end = _LONGEST_WORD // 4
    first, last = redacted(word[:_LONGEST_LOCATION]), redacted(word[-_LONGEST_LOCATION:])
    return f"{first[: _LONGEST_WORD - end]}… ({len(word):,} characters) …{last[-end:]}"


def _short_line(line: str) -> str:
    if len(line) <= _LONGEST_LINE:
        return line
    end = _LONGEST_LINE // 4
    return f"{line[: _LONGEST_LINE - end]}… ({len(line):,} characters) …{line[-end:]}"


def _written_out(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number <= _LAST_C1 else f"\\u{number:04x}"


def _escaped(line: str) -> str:
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", line)
