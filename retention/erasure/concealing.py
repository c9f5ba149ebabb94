"""Names of files that contain an erased string: reports show keyed hashes of them."""

from __future__ import annotations

from collections.abc import Iterable

from retention.erasure.keyed_hash import KeyedHash
from retention.erasure.needles import Needles
from retention.erasure.search import texts_with

CONCEALED = "erased:"
"""The start of a keyed hash that replaces a name."""


def concealed(keyed: KeyedHash, name: str) -> str:
    """The keyed hash that replaces a name."""
    return CONCEALED + keyed.of(name)


def concealed_paths(paths: Iterable[str], needles: Needles, keyed: KeyedHash) -> dict[str, str]:
    """Path → the path as reports show it: names with an erased string are replaced by keyed hashes.

    A path in which only several names together have one is replaced as a whole.
    """
    whole = {*paths}
    naming = texts_with({name for path in whole for name in path.split("/")}, needles)
    shown = {
        path: "/".join(
            concealed(keyed, name) if name in naming else name for name in path.split("/")
        )
        for path in whole
    }
    still = texts_with(shown.values(), needles) if whole else set[str]()
    return {path: concealed(keyed, path) if text in still else text for path, text in shown.items()}
