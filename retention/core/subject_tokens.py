"""Lossless encoding of keys (text or bytes) as subject tokens, in Python and as SQL expressions."""

from __future__ import annotations

import re

from retention.errors import UsageError

_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_/")
"""The characters of a token and of a bucket's key, except `.` (the separator of tokens) and `=` (the escape)."""
_EMPTY = "="
_TOKEN = re.compile(r"=|(?:[A-Za-z0-9/_-]|=[0-9A-F]{2})+", re.ASCII)
_ESCAPED = re.compile(r"=([0-9A-F]{2})", re.ASCII)

_ESCAPING_SQL = (
    "regexp_replace(array_join(transform(regexp_extract_all(decode(CAST(CAST(({}) AS STRING) AS BINARY), "
    "'ISO-8859-1'), '[A-Za-z0-9_/-]+|(?s).', 0), piece -> IF(piece RLIKE '^[A-Za-z0-9_/-]', piece, "
    "concat('=', lpad(hex(ascii(piece)), 2, '0')))), ''), '^$', '=')"
)
_READING_SQL = (
    "unhex(array_join(transform(split(({}), '=', -1), (part, at) -> IF(at = 0, hex(part), "
    "concat(substr(part, 1, 2), hex(substr(part, 3))))), ''))"
)
SQL_FUNCTIONS = {
    "subject_token": ("STRING", "STRING", _ESCAPING_SQL),
    "subject_key": ("STRING", "BINARY", _READING_SQL),
}
"""Function → the SQL types of its argument and result, and the expression, with `{}` for the
argument. None depends on a setting of the session."""


def subject_token(key: str | bytes) -> str:
    """A key as one token of a subject; the token is also a valid key of a bucket.

    Each byte outside `A-Z a-z 0-9 - _ /` is written `=XX` (text is encoded as UTF-8 first); the
    empty key is `=`. A token is at most three times as long as its key, and a subject has at most
    65,535 bytes.

    >>> subject_token("user:1@example.com"), subject_token(b""), subject_token("ü")
    ('user=3A1=40example=2Ecom', '=', '=C3=BC')

    Args:
        key: a text, or bytes.
    """
    octets = key.encode() if isinstance(key, str) else key
    return "".join(chr(byte) if byte in _SAFE else f"={byte:02X}" for byte in octets) or _EMPTY


def subject_key(token: str) -> bytes:
    """The key of a token from `subject_token`, as bytes; call `.decode()` if keys are text.

    Raises:
        UsageError: no key has this token.
    """
    if not _TOKEN.fullmatch(token):
        raise UsageError(
            f"{token!r} is the token of no key: it has characters outside A-Z a-z 0-9 - _ / that are not written =XX"
        )
    if token == _EMPTY:
        return b""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), token).encode("latin-1")


def with_functions_expanded(expression: str) -> str:
    """An SQL expression with each call of `SQL_FUNCTIONS` replaced by its definition.

    So a session needs no registered functions.

    Raises:
        UsageError: a call has no closing parenthesis.
    """
    expanded, at = "", 0
    for match in _PIECE.finditer(expression):
        if match["function"] is None or match.start() < at:
            continue
        end = _closing(expression, match.end())
        argument = with_functions_expanded(expression[match.end() : end])
        _, _, sql = SQL_FUNCTIONS[match["function"].lower()]
        expanded += expression[at : match.start()] + sql.format(argument)
        at = end + 1
    return expanded + expression[at:]


def names_in(expression: str) -> set[str]:
    """The words of an SQL expression that may name columns, in lower case; quoted text is ignored."""
    return {
        word.lower()
        for match in _PIECE.finditer(expression)
        for word in (match["word"], match["quoted"], match["function"])
        if word is not None
    }


def _closing(expression: str, start: int) -> int:
    """The index of the parenthesis that closes the one before `start`."""
    depth = 1
    for match in _PIECE.finditer(expression, start):
        depth += {"(": 1, ")": -1}.get(match[0], 0) + (match["function"] is not None)
        if not depth:
            return match.start()
    raise UsageError(f"{expression}: a parenthesis is not closed")


_PIECE = re.compile(
    r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\""
    rf"|\b(?P<function>{'|'.join(SQL_FUNCTIONS)})\s*\("
    r"|`(?P<quoted>(?:[^`]|``)*)`|(?P<word>[^\W\d]\w*)|[()]",
    re.IGNORECASE | re.DOTALL,
)
"""A quoted text, a call of one of `SQL_FUNCTIONS`, a quoted name, a word, or a parenthesis."""
