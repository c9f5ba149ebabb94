"""The page of commands, from the command line's own description of itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

from retention.cli.examples import EXAMPLES
from retention.cli.main import app
from scripts.reference.markdown import HEAD, code, prose, table

_INTRODUCTION = (
    "# Commands and options\n\n"
    "[Commands](../commands.md) says what a command's help cannot: outputs, JSON, exit codes of several "
    "streams.\n\n"
)


def commands_page() -> str:
    """Every command with its arguments, options, example and exit codes."""
    root: Any = typer.main.get_command(app)
    context = typer.Context(root)
    parts = [
        f"{HEAD}{_INTRODUCTION}## Global options\n\nThey may stand before or after the command.\n\n",
        _options(root.params, context),
        "\n## Every command\n\n",
        table(
            ("command", ""),
            (
                (f"[{code(name)}](#{_anchor(name)})", prose(_help(command)))
                for name, command in _leaves(root, context)
            ),
        ),
    ]
    return "".join([*parts, *(_command(name, each) for name, each in _leaves(root, context))])


def _leaves(group: Any, context: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Each command with its name after `retention`, in the order of the help."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "commands"):
            yield from _leaves(command, typer.Context(command), f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def _command(name: str, command: Any) -> str:
    context = typer.Context(command, info_name=name)
    example, codes = EXAMPLES[name]
    usage = " ".join(["retention", _spelled(name), *command.collect_usage_pieces(context)])
    arguments = (each for each in command.params if each.param_type_name == "argument")
    rows = ((code(each.metavar or each.name.upper()), prose(each.help or "")) for each in arguments)
    parts = (
        f"## {name}\n\n{prose(_help(command))}\n\n```\n{usage}\n```\n",
        table(("argument", ""), rows),
        _options(command.params, context),
        f"Example: {code(f'retention {example}')}. Exit codes: {', '.join(map(str, codes))}.\n",
    )
    return "\n" + "\n".join(part for part in parts if part)


def _spelled(name: str) -> str:
    """The words of a command; a bucket stands between those of `kv`."""
    return name.replace("kv ", "kv BUCKET ", 1) if name.startswith("kv ") else name


def _help(command: Any) -> str:
    text = command.help or (command.callback.__doc__ if command.callback else "") or ""
    return " ".join(text.replace("\b", "").split())


def _options(params: list[Any], context: Any) -> str:
    rows = []
    for each in params:
        if each.param_type_name != "option" or each.hidden:
            continue
        shown, text = each.get_help_record(context) or ("", "")
        rows.append((code(shown), prose(" ".join(text.split()))))
    return table(("option", ""), rows)


def _anchor(name: str) -> str:
    return name.replace(" ", "-")
