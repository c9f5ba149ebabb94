"""The page of metrics, from the explanations that the metrics file itself has."""

from __future__ import annotations

from retention.views.metrics import HELP
from scripts.reference.markdown import HEAD, code, prose, table

_INTRODUCTION = (
    "# Metrics\n\n"
    "`--metrics-file` of every job and of `apply` writes these. [Monitoring](../monitoring.md#metrics) "
    "says how to collect them, and when a series has no sample.\n\n"
)
_BY_RULE, _BY_STATE = ("removed_messages", "removed_rows"), ("dead_bytes",)


def metrics_page() -> str:
    """Name, type, labels and explanation of every metric."""
    rows = (
        (code(name), _kind(name), ", ".join(_labels(name)), prose(text))
        for name, text in HELP.items()
    )
    return f"{HEAD}{_INTRODUCTION}{table(('metric', 'type', 'labels', ''), rows)}"  # fmt: skip


def _kind(name: str) -> str:
    return "counter" if name.endswith("_total") else "gauge"


def _labels(name: str) -> list[str]:
    about = [kind for kind in ("stream", "table") if name.startswith(f"retention_{kind}_")]
    plain = name.removesuffix("_total")
    labels = (
        ["rule"] if plain.endswith(_BY_RULE) else ["state"] if plain.endswith(_BY_STATE) else []
    )
    return ["command", *about, *labels]
