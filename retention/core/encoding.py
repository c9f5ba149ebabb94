"""Text of hand-written files: UTF-8, with or without a byte order mark; other encodings are named in the error."""

from __future__ import annotations

_MARK = "\ufeff"
_OTHERS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


def utf8(content: bytes) -> str:
    """Decode UTF-8 without a leading byte order mark (RFC 8259 §8.1, YAML 1.2 §5.2).

    Raises:
        ValueError: the bytes are not UTF-8; the message says what is wrong, and what to write.
    """
    try:
        return without_mark(content.decode())
    except UnicodeDecodeError as error:
        for mark, name in _OTHERS.items():
            if content.startswith(mark):
                raise ValueError(f"begins as {name}; write it in UTF-8") from error
        wrong = content[error.start]
        raise ValueError(
            f"is not UTF-8 (byte 0x{wrong:02x} at position {error.start:,}); write it in UTF-8"
        ) from error


def without_mark(text: str) -> str:
    """A text without a leading byte order mark."""
    return text.removeprefix(_MARK)
