"""Functions of subject transforms (ADR-30): each makes a destination token from the tokens of a subject.

Positions and lengths count bytes, as on the server (2.15.1): a multi-byte character may be split.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from itertools import pairwise

from retention.config.subject_mapping import function_of

TokenMaker = Callable[[Sequence[bytes]], bytes]
"""A function that makes one or more tokens of the destination from the tokens of a subject."""

RANDOM = "random"
_NUMBERED = re.compile(r"\$([-+]?[0-9]+)")
_FNV_OFFSET, _FNV_PRIME, _UINT32 = 2166136261, 16777619, 2**32


def token_maker(token: str, source: Sequence[str]) -> TokenMaker:
    """The maker of one token of a destination.

    Args:
        token: text, `$1`, or a function that the configuration permits.
        source: the tokens of the source, which the subjects match.
    """
    numbered = _NUMBERED.fullmatch(token)
    kind, arguments = ("wildcard", [numbered[1]]) if numbered else function_of(token) or ("", [])
    if not kind:
        text = token.encode()
        return lambda _: text
    if kind == RANDOM:
        buckets = abs(int(arguments[0]))
        return lambda _: b"%d" % (secrets.randbelow(buckets) if buckets else 0)
    stars = [at for at, part in enumerate(source) if part == "*"]
    if kind == "partition":
        hashed = [_place(int(argument), stars) for argument in arguments[1:]]
        return _partition(int(arguments[0]), hashed if {"*", ">"} & set(source) else [])
    place = _place(int(arguments[0]), stars)
    if kind == "wildcard":
        return lambda tokens: tokens[place]
    if kind == "split":
        return lambda tokens: _split(tokens[place], arguments[1])
    cut = _CUTS[kind]
    return _cutting(place, int(arguments[1]), cut)


def _place(number: int, stars: Sequence[int]) -> int:
    """The index of a source's wildcard among its tokens; a number below 1 means the first token."""
    return stars[number - 1] if number >= 1 else 0


def _partition(buckets: int, places: Sequence[int]) -> TokenMaker:
    """A number below `buckets`, from a hash (FNV-1a) of some tokens, or of the whole subject."""
    modulus = buckets % _UINT32

    def number(tokens: Sequence[bytes]) -> bytes:
        key = b"".join(tokens[place] for place in places) if places else b".".join(tokens)
        value = _FNV_OFFSET
        for octet in key:
            value = (value ^ octet) * _FNV_PRIME % _UINT32
        return b"%d" % (value % modulus if modulus else 0)

    return number


def _cutting(place: int, length: int, cut: Callable[[bytes, int], list[bytes]]) -> TokenMaker:
    """A token cut into pieces; one of at most `length` bytes is unchanged."""

    def pieces(tokens: Sequence[bytes]) -> bytes:
        token = tokens[place]
        return b".".join(cut(token, length)) if 0 < length < len(token) else token

    return pieces


def _split(token: bytes, separator: str) -> bytes:
    """A token split at each separator, or after each character if there is none.

    Empty pieces are dropped, except one before the third piece: -a-b becomes a.b, and --a becomes .a.
    """
    characters = [character.encode() for character in token.decode()]
    parts = token.split(separator.encode()) if separator else characters
    made = parts[0]
    for at, (part, following) in enumerate(pairwise(parts)):
        made += (b"." if following and (at or part) else b"") + following
    return made


def _slices(token: bytes, length: int, first: int) -> list[bytes]:
    """The slices of `length` bytes after the first ones, if any."""
    cuts = range(first, len(token), length)
    return ([token[:first]] if first else []) + [token[at : at + length] for at in cuts]


_CUTS: dict[str, Callable[[bytes, int], list[bytes]]] = {
    "splitfromleft": lambda token, at: [token[:at], token[at:]],
    "splitfromright": lambda token, at: [token[:-at], token[-at:]],
    "slicefromleft": lambda token, length: _slices(token, length, 0),
    "slicefromright": lambda token, length: _slices(token, length, len(token) % length),
    "left": lambda token, length: [token[:length]],
    "right": lambda token, length: [token[-length:]],
}
