"""The owner of a stream: the configuration that listed it last, which alone runs scheduled work on it."""

from __future__ import annotations

from retention.config.owner import Owner
from retention.context.context import OpenedStream
from retention.errors import RefusedError
from retention.stores.sidecar import owner as records


def note_owner(opened: OpenedStream) -> None:
    """Record that the configuration owns a stream, if it lists the stream."""
    if opened.owner is not None and opened.is_listed:
        records.note_listing(opened.root, opened.owner, opened.clock())


def other_owner(opened: OpenedStream) -> Owner | None:
    """The other configuration that owns a stream; None: this one lists it, or none does."""
    if opened.is_listed:
        return None
    return records.other_owner(opened.root, opened.owner, opened.clock())


def is_unlisted(opened: OpenedStream) -> bool:
    """Whether a stream has no policy although there is a configuration: no configuration lists the stream."""
    return not opened.is_listed and opened.owner is not None and other_owner(opened) is None


def refuse_other_owner(opened: OpenedStream) -> None:
    """Refuse scheduled work on a stream by a configuration that does not know its settings.

    Raises:
        RefusedError: naming the configuration that owns it.
    """
    other = other_owner(opened)
    if other is not None:
        raise RefusedError(
            f"{opened.name}: the configuration {other} listed this stream last and owns it, and its settings are not "
            "known here; nothing was changed; name that file with --config, or list the stream in this configuration"
        )
