"""Records of our own that name erased messages: arguments of runs, and legal holds that have ended."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from retention.erasure.concealing import concealed
from retention.erasure.keyed_hash import KeyedHash
from retention.history.chain import ERASABLE
from retention.history.erasing import erase_values
from retention.history.runs import History
from retention.rules.erase import ErasedMessages
from retention.stores.holds import HoldRecords

_WORD = re.compile(r"[^\s,;\"'()]+")


@dataclass(frozen=True)
class ErasedNames:
    """The names of erased messages: subjects that the request matches, and strings that no message left has."""

    messages: ErasedMessages
    strings: Collection[str]

    def are_in(self, text: str) -> bool:
        """Whether a text is such a name, or has one as a word."""
        words = [text, *_WORD.findall(text)]
        words += [part for word in words for part in word.split("=") if part != word]
        if not self.strings and not self.messages.subjects:
            return False
        return any(word in self.strings or self.messages.names(word) for word in words) or bool(
            self.messages.on_subjects(pa.array(words, pa.string())).any()
        )


def erase_arguments(history: History, names: ErasedNames) -> int:
    """Destroy the arguments of runs that name erased messages, with their salts; the number of runs.

    Raises:
        DamagedError: a record cannot be read.
    """
    return sum(erase_values(history, run, ERASABLE) for run in _runs_naming(history, names))


def conceal_holds(records: HoldRecords, names: ErasedNames, keyed: KeyedHash) -> int:
    """Replace what names erased messages in the records of ended legal holds by keyed hashes; the number of holds.

    Raises:
        DamagedError: a record cannot be read.
    """
    concealed = partial(_concealed, names, keyed)
    naming = [
        hold
        for hold in records.all()
        if hold.end is not None
        if any(
            text is not None and names.are_in(text)
            for text in (
                *(hold.subject, hold.reason, hold.owner, hold.end.reason),
                *(hold.values or {}).values(),
            )
        )
    ]
    for hold in naming:
        records.conceal(hold, concealed)
    return len(naming)


def _concealed(names: ErasedNames, keyed: KeyedHash, text: str) -> str:
    return concealed(keyed, text) if names.are_in(text) else text


def _runs_naming(history: History, names: ErasedNames) -> Iterator[str]:
    for stored in history.stored():
        for fields in (stored.intent, stored.outcome):
            values = [(fields or {}).get(name) for name in ERASABLE]
            if any(names.are_in(text) for value in values for text in _texts(value)):
                yield stored.run
                break


def _texts(value: object) -> Iterator[str]:
    """The texts in a value of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
