"""Colours of rules and fates that the colour-blind can tell apart (Okabe and Ito), on light and on dark pages."""

from __future__ import annotations

from dataclasses import dataclass

BLUE, SKY, GREEN, YELLOW = "#0072B2", "#56B4E9", "#009E73", "#F0E442"
ORANGE, VERMILLION, PURPLE, GREY = "#E69F00", "#D55E00", "#CC79A7", "#8C8C8C"


@dataclass(frozen=True)
class Style:
    """The looks of one series."""

    colour: str
    hatch: str = ""
    """A pattern over the colour, as matplotlib names it; empty: none."""


KEPT = "kept"
STYLES = {
    KEPT: Style(GREEN),
    "max_age": Style(VERMILLION),
    "max_msgs": Style(BLUE),
    "max_bytes": Style(SKY),
    "max_msgs_per_subject": Style(ORANGE),
    "msg_ttl": Style(PURPLE),
    "max_subjects": Style(GREY),
    "interest": Style(YELLOW),
    "workqueue": Style(YELLOW, "///"),
    "delete_retention": Style(PURPLE, "///"),
    "message_expiry": Style(VERMILLION),
    "max_topic_size": Style(BLUE),
    "delete_segments": Style(GREY, "..."),
    "delete": Style(SKY, "///"),
    "purge": Style(BLUE, "///"),
    "rollup": Style(ORANGE, "///"),
    "drop": Style(GREY, "///"),
    "erase": Style(VERMILLION, "///"),
    "refused": Style(GREY, "ooo"),
    "duplicate": Style(YELLOW, "..."),
    "expires_at": Style(PURPLE),
    "max_rows": Style(BLUE),
    "max_rows_per_key": Style(ORANGE),
    "by several rules": Style(GREY, "..."),
    "perhaps": Style("#C8C8C8", "///"),
    "undone": Style(GREY, "xxx"),
    "not delivered": Style(BLUE),
    "not acknowledged": Style(ORANGE),
    "held back": Style(VERMILLION),
    "stored": Style(GREEN),
    "taken": Style(BLUE),
    "skipped": Style(GREY),
    "held": Style(GREEN, "///"),
    "restored": Style(GREEN, "..."),
    "behind": Style(VERMILLION),
}
"""Series → its looks; two series of one picture share neither colour nor pattern."""
_ROUND = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, YELLOW, GREY)


def style_of(name: str) -> Style:
    """The looks of a series; grey with dots, if it has none."""
    return STYLES.get(name, Style(GREY, "..."))


def curve_colour(number: int) -> str:
    """The colour of a curve by its number among the others."""
    return _ROUND[number % len(_ROUND)]
