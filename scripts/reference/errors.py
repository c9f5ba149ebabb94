"""The page of exit codes and errors, from the error classes and the sentences in the source."""

from __future__ import annotations

import inspect
import re

from retention import errors
from retention.cli.examples import MEANINGS
from retention.core.outcomes import UNEXPECTED
from scripts.reference.markdown import HEAD, code, prose, table
from tests.safety.remedies import KINDS, sentences

_INTRODUCTION = (
    "# Exit codes and errors\n\n"
    "An error is one sentence: what, where, why, what to do. [Recover](../recover.md) has the steps for "
    "each exit code.\n\n"
)
_SENTENCES = (
    "\n## Sentences\n\nThe sentences of exit codes 4 and 6 and of `doctor`, by the remedy that they name; `…` "
    "stands for values.\nA sentence with two remedies stands under both.\n"
)
_SHORTEST = 30
"""The fewest characters of a sentence, without its values, that a reader can recognise."""


def errors_page() -> str:
    """Exit codes, error classes, and the sentences of errors by kind of remedy."""
    meanings = {**MEANINGS, UNEXPECTED: "unexpected: a defect, please report it"}
    codes = ((str(code_), meanings[code_]) for code_ in sorted(meanings))
    return "".join(
        (
            HEAD,
            _INTRODUCTION,
            "## Exit codes\n\n",
            table(("code", ""), codes),
            "\n## Classes\n\nIn Python each error is a class of `retention.errors`.\n\n",
            table(("class", "is a", "exit code", ""), _classes()),
            _SENTENCES,
            *(_kind(name) for name in KINDS),
        )
    )


def _classes() -> list[tuple[str, str, str, str]]:
    return [
        (code(name), code(kind.__mro__[1].__name__), str(getattr(kind, "exit_code", "")), _summary(kind))
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, BaseException)
    ]  # fmt: skip


def _summary(kind: type) -> str:
    return prose((inspect.getdoc(kind) or "").split("\n\n")[0])


def _kind(name: str) -> str:
    texts = {_plain(each.text) for each in sentences() if name in each.kinds}
    lines = [
        f"- {prose(text)}\n" for text in sorted(texts) if len(text.replace("…", "")) >= _SHORTEST
    ]
    return f"\n### {name}\n\n{''.join(lines)}" if lines else ""


def _plain(text: str) -> str:
    """A sentence of the source with `…` for its values."""
    while (shorter := re.sub(r"\{[^{}]*\}", "…", text)) != text:
        text = shorter
    return re.sub(r"\s+", " ", text)
