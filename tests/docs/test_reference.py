"""The generated pages of docs/reference, and the tables of pages that code has to agree with."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from retention.cli.examples import EXAMPLES, MEANINGS
from retention.config.load import ConfigFile
from retention.config.sentences import SENTENCES
from retention.core.outcomes import UNEXPECTED
from scripts.reference.pages import PAGES, REFERENCE

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_what_the_code_says(name: str) -> None:
    """After a change of the code, `python -m scripts.reference` writes the pages anew."""
    page = PAGES[name]()
    if os.environ.get("ACCEPT"):
        (REFERENCE / name).write_text(page, encoding="utf-8")
    assert (REFERENCE / name).read_text(encoding="utf-8") == page


def test_every_key_of_a_described_model_has_a_sentence_and_no_other_key_has_one() -> None:
    schema = ConfigFile.model_json_schema()
    models = schema["$defs"] | {"ConfigFile": schema}
    for model, sentences in SENTENCES.items():
        assert sentences.keys() == models[model]["properties"].keys(), model


def test_the_reference_has_every_command_with_an_example() -> None:
    headings = re.findall(r"^## (.*)$", PAGES["commands.md"](), re.MULTILINE)
    assert headings[2:]
    assert sorted(headings[2:]) == sorted(EXAMPLES)


def test_exit_codes_are_those_that_commands_say_in_their_help() -> None:
    text = (DOCS / "commands.md").read_text(encoding="utf-8")
    codes = re.findall(r"^\| (\d+) \| ", text.split("## Exit codes")[1], re.MULTILINE)
    assert list(map(int, codes)) == sorted({*MEANINGS, UNEXPECTED})
