"""Bars for long work in a notebook, by IPython's displays alone; a script and a terminal get none."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from retention.core.markup import escape
from retention.core.progress import LISTENERS, Pace

_AFTER_S, _EVERY_S = 1.0, 0.25
"""A bar appears for work that takes longer than the first, and moves once per the second."""
_EMPTY = {"text/html": "", "text/plain": ""}


class NotebookBars:
    """A bar for each activity of the running cell, which disappears when the activity or the cell ends."""

    def __init__(self, show: Callable[..., Any], clock: Callable[[], float]) -> None:
        """Begin without a bar.

        Args:
            show: displays a bundle of MIME types, and returns a handle with `update`.
            clock: monotonic, in seconds.
        """
        self._show, self._clock = show, clock
        self._pace = Pace(clock)
        self._begun: dict[str, float] = {}
        self._bars: dict[str, tuple[Any, float]] = {}

    def put(self, doing: str, done: int, total: int) -> None:
        """Show how far an activity has come."""
        now = self._clock()
        left = self._pace.left(doing, done, total)
        if done >= total:
            self._end(doing)
        elif now - self._begun.setdefault(doing, now) >= _AFTER_S:
            handle, moved = self._bars.get(doing, (None, now - _EVERY_S))
            if now - moved < _EVERY_S:
                return
            bundle = {
                "text/html": bar_html(doing, done, total, left),
                "text/plain": f"{doing}: {done:,} of {total:,}{left}",
            }
            if handle is None:
                handle = self._show(bundle, raw=True, display_id=True)
            else:
                handle.update(bundle, raw=True)
            self._bars[doing] = (handle, now)

    def clear(self, *_: object) -> None:
        """End all bars: the cell has ended, also by an error."""
        for doing in [*self._begun]:
            self._end(doing)

    def _end(self, doing: str) -> None:
        self._begun.pop(doing, None)
        handle, _ = self._bars.pop(doing, (None, 0.0))
        if handle is not None:
            handle.update(_EMPTY, raw=True)


def bar_html(doing: str, done: int, total: int, left: str = "") -> str:
    """A bar that is filled as far as the work has come, with its numbers."""
    share = 100 * min(done, total) / total if total else 100.0
    return (
        '<div style="font:13px/1.5 system-ui,sans-serif;max-width:40em">'
        f"<div>{escape(doing)}: {done:,} of {total:,}{escape(left)}</div>"
        '<div style="height:8px;border-radius:4px;background:var(--jp-border-color2,rgba(128,128,128,.35))">'
        f'<div style="height:8px;border-radius:4px;width:{share:.1f}%;'
        'background:var(--jp-brand-color1,#0072B2)"></div></div></div>'
    )


def show_in_notebook() -> None:
    """Show the progress of long work from now on, if this process is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return
    if any(isinstance(getattr(each, "__self__", None), NotebookBars) for each in LISTENERS):
        return
    from IPython.display import display  # type: ignore[import-not-found, unused-ignore]

    bars = NotebookBars(display, time.monotonic)
    LISTENERS.append(bars.put)
    shell.events.register("post_execute", bars.clear)
