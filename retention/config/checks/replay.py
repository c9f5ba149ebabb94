"""The refusals of streams whose passes replay, and of what excludes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from retention.config.types import UNLIMITED, ConfigRefusal, refusal

if TYPE_CHECKING:
    from retention.config.stream_fields import StreamFields

_NO_SERVER = "no server has it, so none can be replayed with it"
_NOT_STORED = "what is published changes before it is stored, and a replay needs what was published"
_COPIES = "when a server would have copied each message is not stored"
_EXCLUDED = {
    "hold_for_consumers": "when each message was acknowledged is not stored",
    "subject_delete_marker_ttl": "a marker would need a sequence that a later message has already",
    "mirror": _COPIES,
    "sources": _COPIES,
    "allow_msg_counter": _NOT_STORED,
    "allow_msg_schedules": _NOT_STORED,
    "sealed": "a sealed stream takes no publish",
    "delete_retention": _NO_SERVER,
    "whole_segments": _NO_SERVER,
}


def replay_refusals(stream: StreamFields) -> Iterator[ConfigRefusal]:
    """The refusals of `mode: replay` with what a replay cannot answer (docs/semantics/replay-mode.md)."""
    if stream.mode != "replay":
        return
    if stream.retention != "limits":
        why = "when each message was acknowledged is not stored"
        yield _excluded("retention", f"{stream.retention} excludes", why)
    for key, why in _EXCLUDED.items():
        if getattr(stream, key):
            yield _excluded(key, "excludes", why)
    if stream.max_subjects != UNLIMITED:
        yield _excluded("max_subjects", "excludes", _NO_SERVER)
    if stream.expiry == "each":
        yield _excluded("expiry", "each excludes", _NO_SERVER)


def _excluded(key: str, excludes: str, why: str) -> ConfigRefusal:
    return refusal(f"{key} mode", f"{excludes} mode: replay: {why}; leave one of them out", None)
