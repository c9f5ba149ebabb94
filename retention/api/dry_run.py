"""Work that is shown before it is done: the answer of a call that changes files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Generic, Protocol, Self, TypeVar

from retention.api.public import Public
from retention.core.outcomes import Outcome
from retention.views.wording import lines_text

Found = TypeVar("Found")
Done = TypeVar("Done")
_HINT = "dry run: apply() does it"


class DryRun(Public, Generic[Found, Done]):
    """Work on a stream or on several that a call has found and not done: it displays itself, `apply()` does it."""

    def __init__(
        self,
        find: Callable[[], Found],
        act: Callable[[], Done],
        show: Callable[[Found], Iterable[str]],
    ) -> None:
        """Hold what it takes.

        Args:
            find: looks what there is to do, and changes nothing.
            act: does it.
            show: the lines that say what was found.
        """
        self._find, self._act, self._show = find, act, show

    @cached_property
    def plan(self) -> Found:
        """The work that was found, of which nothing is done."""
        return self._find()

    def looked(self) -> Self:
        """Itself, after it has looked, with what looking raises."""
        _ = self.plan
        return self

    def apply(self) -> Done:
        """Do the work: what there is to do by now, found anew.

        Raises:
            BusyError: another run is at work on the stream.
        """
        return self._act()

    def __repr__(self) -> str:
        return lines_text([*self._show(self.plan), _HINT])


class Mendable(Protocol):
    """Findings of a repair, before and after it has acted."""

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to repair."""

    def as_json(self) -> dict[str, Any]:
        """The repair as JSON values."""


Mended = TypeVar("Mended", bound=Mendable)


class Repair(DryRun[Mended, Mended]):
    """A repair of a stream that is shown and not done."""

    def lines(self, mended: Mended) -> list[str]:
        """The lines that say what there is to mend, or what was."""
        return list(self._show(mended))


def lines_of_outcomes(
    show: Callable[[Found], Iterable[str]],
) -> Callable[[Sequence[Outcome[Found]]], Iterator[str]]:
    """The lines of several streams, made of those of one; an error is its sentence."""

    def lines(outcomes: Sequence[Outcome[Found]]) -> Iterator[str]:
        for outcome in outcomes:
            yield from [outcome.sentence] if outcome.value is None else show(outcome.value)

    return lines
