"""The generated pages by file name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from scripts.reference.commands import commands_page
from scripts.reference.configuration import configuration_page
from scripts.reference.errors import errors_page
from scripts.reference.metrics import metrics_page
from scripts.reference.python_api import python_page

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGES: Mapping[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "configuration.md": configuration_page,
    "errors.md": errors_page,
    "metrics.md": metrics_page,
    "python.md": python_page,
}
