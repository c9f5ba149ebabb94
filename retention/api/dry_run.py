"""Dry runs: the result of a call that would change files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Generic, Protocol, Self, TypeVar

from retention.api.public import Public
from retention.core.json_object import JsonObject
from retention.core.markup import lines_card
from retention.core.outcomes import Outcome
from retention.views.wording import lines_text

Found = TypeVar("Found")
Done = TypeVar("Done")
_HINT = "dry run: apply() does it"


class DryRun(Public, Generic[Found, Done]):
    """Planned work on streams: the object displays the plan, and `apply()` carries it out."""

    def __init__(
        self,
        find: Callable[[], Found],
        act: Callable[[], Done],
        show: Callable[[Found], Iterable[str]],
    ) -> None:
        """Store the functions that plan, carry out and show the work.

        Args:
            find: plans the work, and changes nothing.
            act: carries the work out.
            show: the lines that describe the plan.
        """
        self._find, self._act, self._show = find, act, show

    @cached_property
    def plan(self) -> Found:
        """The planned work; nothing is done yet."""
        return self._find()

    def looked(self) -> Self:
        """The object itself, after planning; raises the errors of planning."""
        _ = self.plan
        return self

    def apply(self) -> Done:
        """Plan the work again, and carry it out.

        Raises:
            BusyError: another run is in progress on the stream.
        """
        return self._act()

    def __repr__(self) -> str:
        return lines_text([*self._show(self.plan), _HINT])

    def _repr_html_(self) -> str:
        return lines_card(list(self._show(self.plan)), "Dry run", "apply() carries it out")


class Mendable(Protocol):
    """Findings of a repair, before and after it has been done."""

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to repair."""

    def as_json(self) -> JsonObject:
        """The repair as JSON values."""


Mended = TypeVar("Mended", bound=Mendable)


class Repair(DryRun[Mended, Mended]):
    """A planned repair of a stream."""

    def lines(self, mended: Mended) -> list[str]:
        """The lines that describe the repair, needed or done."""
        return list(self._show(mended))


def lines_of_outcomes(
    show: Callable[[Found], Iterable[str]],
) -> Callable[[Sequence[Outcome[Found]]], Iterator[str]]:
    """The lines for several streams, made from those for one; an error is shown as its sentence."""

    def lines(outcomes: Sequence[Outcome[Found]]) -> Iterator[str]:
        for outcome in outcomes:
            yield from [outcome.sentence] if outcome.value is None else show(outcome.value)

    return lines
