"""Laws: properties of all small worlds, tested on 100 of them or on LAW_EXAMPLES.

Worlds on a disk cost a hundred times as much: a tenth of the number, or a fifth of LAW_EXAMPLES.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

Test = TypeVar("Test", bound=Callable[..., None])

_WORLDS = int(os.environ.get("LAW_EXAMPLES", "100"))
_ON_DISK = _WORLDS // 5 if "LAW_EXAMPLES" in os.environ else 10
_NO_FAULT = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)


def law(test: Test) -> Test:
    """Mark a property as a law (`make long NAME=laws` tries more worlds)."""
    return pytest.mark.law(settings(max_examples=_WORLDS, deadline=None)(test))


def law_on_disk(test: Test) -> Test:
    """Mark a property of worlds on a disk as a law: fewer worlds are tested."""
    tried = settings(max_examples=_ON_DISK, deadline=None, suppress_health_check=_NO_FAULT)
    return pytest.mark.law(tried(test))
