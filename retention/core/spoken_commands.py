"""Commands in sentences: a reader can copy one into a shell and run it."""

from __future__ import annotations

import shlex


def command(verb: str, *names: str, options: str = "") -> str:
    """A command of this program between backticks, its names quoted for a shell.

    Args:
        verb: the command and its subcommand.
        names: its arguments: streams, runs, locations.
        options: as they are typed.

    >>> command("repair returned", "ORDERS", options="--yes"), command("purge", "the clicks")
    ('`retention repair returned ORDERS --yes`', "`retention purge 'the clicks'`")
    >>> command("repair returned", "-X", options="--yes")
    '`retention repair returned --yes -- -X`'
    """
    quoted = list(map(shlex.quote, names))
    given = [options] if options else []
    words = (
        [*given, "--", *quoted]
        if any(name.startswith("-") for name in names)
        else [*quoted, *given]
    )
    return f"`{' '.join(['retention', verb, *words])}`"


def given_up(stream: str, path: str) -> str:
    """The last resort for a file of a table: the command that gives it up; empty if the stream is unknown."""
    repair = command("repair lost", stream, path, options="--yes")
    return f", or give up what it held: {repair}" if stream else ""
