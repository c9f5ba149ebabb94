"""The broker's own retention rules for message streams in a lakehouse: plan, explain, apply, undo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retention.api.warehouse import open_warehouse as open_warehouse

__all__ = ["__version__", "open_warehouse"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load what is heavy when it is first asked for."""
    if name == "open_warehouse":
        from retention.api.warehouse import open_warehouse

        return open_warehouse
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
