"""Every command's help ends with a valid example, and with its exit codes."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import typer.main

from retention.cli.app import options_first
from retention.cli.examples import EXAMPLES
from retention.cli.main import app
from tests.support.command_line import invoke


def leaves(group: Any, before: str = "") -> dict[str, Any]:
    """Every command by its words."""
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        inner = hasattr(command, "commands")
        found |= leaves(command, f"{before}{name} ") if inner else {f"{before}{name}": command}
    return found


COMMANDS = leaves(typer.main.get_command(app))


def test_every_command_has_an_example_and_every_example_a_command() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_an_example_that_the_command_takes(name: str) -> None:
    example, codes = EXAMPLES[name]
    # A bucket precedes its command.
    called = shlex.split(example)[: len(name.split()) + name.startswith("kv ")]
    said = invoke([*called, "--help"]).stdout
    assert f"Example:\n    retention {example}\n" in said
    listed = [line.split()[0] for line in said[said.index("Exit codes:") :].splitlines()[1:]]
    assert [*map(int, listed)] == sorted(codes)
    words = shlex.split(example)[len(called) :]
    own = [word for word in options_first(words) if word not in {"--config", "retention.yaml"}]
    COMMANDS[name].make_context(name, own)


@pytest.mark.parametrize(("name", "code"), [("plan", 3), ("plan", 5), ("apply", 4), ("apply", 75)])
def test_codes_that_scripts_ask_for_are_listed(name: str, code: int) -> None:
    assert code in EXAMPLES[name][1]
