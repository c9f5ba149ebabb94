"""Refusals of requested removals that the server would not execute on this stream."""

from __future__ import annotations

from retention.context.context import OpenedStream
from retention.context.topic import topic_of
from retention.core.spoken_commands import command
from retention.errors import RefusedError
from retention.rules.erase import Erase
from retention.rules.iggy.delete_segments import DeleteSegments
from retention.rules.purge_deletes import PurgeDeletes
from retention.rules.requests import Delete, Drop, MessageRequest, Purge, Request, Rollup


def check_allowed(opened: OpenedStream, request: Request) -> None:
    """Refuse a removal that the server would not execute on this stream.

    Raises:
        RefusedError: with the server's error code, if it has one.
        UsageError: the request is to delete segments, and the stream is not a topic.
    """
    config = opened.config
    if isinstance(request, Drop | Rollup):
        # A server also deletes streams that are sealed or deny purges; roll-ups are checked as they are published.
        return
    if isinstance(request, DeleteSegments):
        topic_of(opened)
        return
    if config.topic is not None:
        if isinstance(request, Erase):
            raise _erasure_of_topic(opened)
        if request != Purge():
            raise _not_of_topics(opened, request)
        return
    _refuse_denied(opened, request)


def _refuse_denied(opened: OpenedStream, request: MessageRequest | Erase) -> None:
    """Refuse a request that the configuration of a stream denies."""
    config = opened.config
    if config.sealed:
        why, setting, code = "invalid operation on sealed stream", "sealed", 10109
    elif config.deny_purge and isinstance(request, Purge | PurgeDeletes):
        why, setting, code = "stream purge not permitted", "deny_purge", 10110
    elif config.deny_delete and isinstance(request, Delete | Erase):
        why, setting, code = "message delete not permitted", "deny_delete", 10057
    else:
        return
    raise RefusedError(
        f"{opened.name}: {why} (error code {code}); nothing was changed; take {setting} out of the configuration if "
        "you mean it, which no server would let you do"
    )


def _erasure_of_topic(opened: OpenedStream) -> RefusedError:
    removal = command("delete-segments", opened.name, "PARTITION", "N")
    deletion = command("reclaim", opened.name, options="--yes")
    return RefusedError(
        f"{opened.name}: is a topic, of which only whole segments are removed, so single messages cannot be erased; "
        f"nothing was changed; remove its oldest segments with {removal}, and their files with {deletion} after the "
        "grace period"
    )


def _not_of_topics(opened: OpenedStream, request: MessageRequest) -> RefusedError:
    why = (
        "only whole segments are removed"
        if isinstance(request, Delete)
        else "a purge removes everything"
    )
    return RefusedError(
        f"{opened.name}: is a topic, of which {why}; nothing was changed; remove its oldest segments with "
        f"{command('delete-segments', opened.name, 'PARTITION', 'N')}, or all that it holds with "
        f"{command('purge', opened.name)}"
    )
