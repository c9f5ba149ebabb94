"""The label of the work at hand, by which others tell it from the outside: stream, run and step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from retention.errors.printable import visible

Given = ParamSpec("Given")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Label:
    """The stream, run and step of a piece of work; what is not known is empty."""

    stream: str = ""
    run: str = ""
    """The run's name in the history or, of an append, in the log."""
    step: str = ""
    """The activity, such as `copy rows that stay`."""

    @property
    def group(self) -> str:
        """The id under which all work of the run can be cancelled; of work that is no run, its stream's."""
        return self.run or f"retention {visible(self.stream)}".rstrip()

    @property
    def text(self) -> str:
        """The words for people: `ORDERS: copy rows (run 20261121T…)`."""
        head = f"{visible(self.stream)}: " if self.stream else ""
        return f"{head}{self.step or 'work'}{f' (run {self.run})' if self.run else ''}"


_NOTHING = Label()
_current: ContextVar[Label] = ContextVar("retention_label", default=_NOTHING)


def current_label() -> Label:
    """The label of what this thread is doing."""
    return _current.get()


@contextmanager
def labelled(*, stream: str = "", run: str = "", step: str = "") -> Iterator[None]:
    """Label the work of the block, or of a decorated function, of this thread; what is left empty stays."""
    named = {"stream": stream, "run": run, "step": step}
    given = {part: name for part, name in named.items() if name}
    before = _current.set(replace(_current.get(), **given))
    try:
        yield
    finally:
        _current.reset(before)


class Named(Protocol):
    """A stream or topic, whatever holds it."""

    @property
    def name(self) -> str:
        """The name that commands take."""
        ...


Stream = TypeVar("Stream", bound=Named)


def on_stream(
    act: Callable[Concatenate[Stream, Given], Result],
) -> Callable[Concatenate[Stream, Given], Result]:
    """Label the work of a function with the stream that is its first argument."""

    @wraps(act)
    def labelling(opened: Stream, /, *given: Given.args, **named: Given.kwargs) -> Result:
        with labelled(stream=opened.name):
            return act(opened, *given, **named)

    return labelling
