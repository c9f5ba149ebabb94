"""The sentence of an erasure that has begun and cannot go on now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from retention.core.spoken_commands import command
from retention.errors import RetentionError


@contextmanager
def told_unfinished(name: str, erasure: str) -> Iterator[None]:
    """Say in the error of a step that the erasure has begun: earlier steps stand, and a later run goes on.

    Args:
        name: the stream or table.
        erasure: the id of the erasure.

    Raises:
        RetentionError: that of the block, of the same class.
    """
    try:
        yield
    except RetentionError as error:
        again = command("erase", name, options="--resume")
        cause = str(error).replace("nothing was ", "nothing more was ")
        raise type(error)(
            f"{name}: erasure {erasure} is unfinished, and {again} goes on with it: {cause}"
        ) from error
