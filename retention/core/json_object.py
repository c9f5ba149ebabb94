"""The type of JSON objects that the program prints and stores."""

from __future__ import annotations

from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object: its values are strings, numbers, booleans, None, lists and further objects."""
