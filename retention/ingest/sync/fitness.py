"""The reasons why a stream of a server cannot be synced, and the commands that help."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from retention.context.context import OpenedStream
from retention.errors import RefusedError

if TYPE_CHECKING:
    from retention.nats.stream import StreamInfo

_WHY = {
    "workqueue": "a work queue admits no second reader, and removes what its workers have acknowledged",
    "interest": "an interest stream removes what its consumers have acknowledged, and a reader of ours would be one "
    "more consumer for which it keeps messages",
}


def refuse_unfit(opened: OpenedStream, info: StreamInfo) -> None:
    """Refuse a server's stream that removes messages when they are consumed, and a sealed stream of ours.

    Raises:
        RefusedError: the server's stream has `retention: workqueue` or `interest`; or ours is sealed.
    """
    if opened.config.sealed:
        raise RefusedError(
            f"{opened.name}: the stream is sealed (server error 10109); nothing was written; remove its sync"
        )
    policy = str(info.config.get("retention", "limits"))
    if policy in _WHY:
        copy = f"{info.name}_ARCHIVE"
        make = (
            f"nats stream add {shlex.quote(copy)} --mirror {shlex.quote(info.name)} --storage file --retention limits "
            "--defaults"
        )
        raise RefusedError(
            f"{opened.name}: {info.name} on the server has retention {policy}: {_WHY[policy]}; nothing was copied; "
            f"make a mirror there (`{make}`), and sync {copy} (sync: {{stream: {copy}}})"
        )
