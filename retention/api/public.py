"""Public names of an object: those that `dir` and completion show."""

from __future__ import annotations

_INTERNAL = frozenset(("opened",))
"""The opened stream that methods use, which is not part of the API."""


class Public:
    """An object for which `dir` shows only public names."""

    def __dir__(self) -> list[str]:
        names = super().__dir__()
        return [name for name in names if not name.startswith("_") and name not in _INTERNAL]
