"""Measured steps at scale, and the checks of their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from retention.engines.select import EngineName


class WrongError(Exception):
    """A step has a wrong result."""


@dataclass(frozen=True)
class Step:
    """A step, measured in its own process, and an unmeasured check of its result."""

    act: Callable[[], Any]
    check: Callable[[Any], dict[str, Any]]
    """The figures of the result.

    Raises:
        WrongError: it is wrong.
    """


class Work(Protocol):
    """Work of some size, prepared first."""

    def make(self, place: Path) -> None:
        """Write the input of the steps to an empty directory."""
        ...

    def steps(self, place: Path, engine: EngineName) -> Mapping[str, Step]:
        """The steps by name, in order; each depends on the previous ones."""
        ...


def expect(what: str, actual: object, expected: object) -> None:
    """Compare two values.

    Raises:
        WrongError: they differ.
    """
    if actual != expected:
        raise WrongError(f"{what}: {actual}, and it has to be {expected}")
