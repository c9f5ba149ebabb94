"""Laws: properties that hold in every small world; tried on 100 of them, or on what LAW_EXAMPLES says."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import settings

Test = TypeVar("Test", bound=Callable[..., None])


def law(test: Test) -> Test:
    """Mark a property as a law (`make laws` tries more examples)."""
    examples = int(os.environ.get("LAW_EXAMPLES", "100"))
    return pytest.mark.law(settings(max_examples=examples, deadline=None)(test))
