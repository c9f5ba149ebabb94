"""Names that people use of an object: what `dir` and completion show of it."""

from __future__ import annotations

_INTERNAL = frozenset(("opened",))
"""The opened stream that methods work on, which is no contract."""


class Public:
    """An object of which `dir` shows what is public, and nothing else."""

    def __dir__(self) -> list[str]:
        names = super().__dir__()
        return [name for name in names if not name.startswith("_") and name not in _INTERNAL]
