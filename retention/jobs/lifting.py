"""The arguments by which a job's caller lifts refusals, each for this run only."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from retention import Guards

if TYPE_CHECKING:
    from retention.apply.approval import Approved


def add_lifts(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that lift refusals for one run."""
    parser.add_argument(
        "--allow-large",
        action="store_true",
        help="exceed the limits of `guards`, this once",
    )
    parser.add_argument(
        "--allow-rewind",
        action="store_true",
        help="allow an instant earlier than the last applied one",
    )


def lifted(arguments: argparse.Namespace, approved: Mapping[str, Approved] | None = None) -> Guards:
    """The refusals that the arguments lift, and a person's approvals."""
    return Guards(
        allow_large=arguments.allow_large,
        allow_rewind=arguments.allow_rewind,
        approved=approved,
    )
