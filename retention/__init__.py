"""The broker's own retention rules for message streams in a lakehouse: plan, explain, apply, undo."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retention import errors as errors
    from retention.api.spark_source import register as register
    from retention.api.warehouse import open_warehouse as open_warehouse
    from retention.apply.compact import CompactionLimits as CompactionLimits
    from retention.apply.guards import Guards as Guards
    from retention.core.subject_tokens import subject_key as subject_key
    from retention.core.subject_tokens import subject_token as subject_token
    from retention.engines.spark.functions import register_functions as register_functions
    from retention.inspect.messages import Selection as Selection
    from retention.restore.select import MessageRange as MessageRange

__all__ = [
    "CompactionLimits",
    "Guards",
    "MessageRange",
    "Selection",
    "__version__",
    "errors",
    "open_warehouse",
    "register",
    "register_functions",
    "subject_key",
    "subject_token",
]

__version__ = "0.1.0"

_HOMES = {
    "CompactionLimits": "retention.apply.compact",
    "Guards": "retention.apply.guards",
    "MessageRange": "retention.restore.select",
    "Selection": "retention.inspect.messages",
    "open_warehouse": "retention.api.warehouse",
    "register": "retention.api.spark_source",
    "register_functions": "retention.engines.spark.functions",
    "subject_key": "retention.core.subject_tokens",
    "subject_token": "retention.core.subject_tokens",
}
"""Public name → the module that has it, loaded at first use."""


def __getattr__(name: str) -> object:
    """Load a public name at first use."""
    if name == "errors":
        return import_module("retention.errors")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}"
    )


def __dir__() -> list[str]:
    """The names that are public."""
    return sorted(__all__)
