"""The label of the current work, for logs and engine UIs: stream, run and step."""

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
    """The stream, run and step of some work; unknown fields are empty."""

    stream: str = ""
    run: str = ""
    """The run's name in the history; for an append, its name in the log."""
    step: str = ""
    """The activity, such as `copy rows that stay`."""

    @property
    def group(self) -> str:
        """The id to cancel all work of the run; the stream's id for work outside a run."""
        return self.run or f"retention {visible(self.stream)}".rstrip()

    @property
    def text(self) -> str:
        """The label for people: `ORDERS: copy rows (run 20261121T…)`."""
        head = f"{visible(self.stream)}: " if self.stream else ""
        return f"{head}{self.step or 'work'}{f' (run {self.run})' if self.run else ''}"


_NOTHING = Label()
_current: ContextVar[Label] = ContextVar("retention_label", default=_NOTHING)


def current_label() -> Label:
    """The label of this thread's work."""
    return _current.get()


@contextmanager
def labelled(*, stream: str = "", run: str = "", step: str = "") -> Iterator[None]:
    """Label this thread's work in the block, or in a decorated function; empty fields keep their values."""
    named = {"stream": stream, "run": run, "step": step}
    given = {part: name for part, name in named.items() if name}
    before = _current.set(replace(_current.get(), **given))
    try:
        yield
    finally:
        _current.reset(before)


class Named(Protocol):
    """Any object with the name of a stream or topic."""

    @property
    def name(self) -> str:
        """The name that commands accept."""
        ...


Stream = TypeVar("Stream", bound=Named)


def on_stream(
    act: Callable[Concatenate[Stream, Given], Result],
) -> Callable[Concatenate[Stream, Given], Result]:
    """Label the work of a function with its first argument, a stream."""

    @wraps(act)
    def labelling(opened: Stream, /, *given: Given.args, **named: Given.kwargs) -> Result:
        with labelled(stream=opened.name):
            return act(opened, *given, **named)

    return labelling
