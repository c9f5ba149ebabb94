"""Refusals that the caller of a job lifts, once."""

from __future__ import annotations

import argparse
from typing import Any

from retention import Guards


def add_lifts(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that lift refusals."""
    parser.add_argument(
        "--allow-large",
        action="store_true",
        help="let it take more than `guards` let go, this once",
    )
    parser.add_argument(
        "--allow-rewind",
        action="store_true",
        help="let it apply an earlier instant than the last applied one, this once",
    )


def lifted(arguments: argparse.Namespace, **more: Any) -> Guards:
    """The refusals that the arguments lift, and more about a pass."""
    return Guards(allow_large=arguments.allow_large, allow_rewind=arguments.allow_rewind, **more)
