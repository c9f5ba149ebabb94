from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from retention.core import progress
from retention.core.outcomes import act_sequentially
from retention.views.notebook_progress import NotebookBars, show_in_notebook


class Screen:
    """The displays of a notebook: the last bundle of each."""

    def __init__(self) -> None:
        self.bundles: list[dict[str, str]] = []

    def show(self, bundle: dict[str, str], **_: Any) -> Any:
        self.bundles.append(bundle)
        at, screen = len(self.bundles) - 1, self

        class Handle:
            def update(self, later: dict[str, str], **_: Any) -> None:
                screen.bundles[at] = later

        return Handle()


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    shown, times = Screen(), iter(range(1000))
    bars = NotebookBars(shown.show, lambda: float(next(times)))
    monkeypatch.setattr(progress, "LISTENERS", [bars.put])
    yield shown
    bars.clear()
    assert all(bundle["text/html"] == "" for bundle in shown.bundles)


def test_long_work_has_a_bar_while_it_lasts(screen: Screen) -> None:
    work = progress.with_progress(range(5), 5, "reading <files>")
    for _ in range(4):
        next(work)
    [bundle] = screen.bundles
    assert bundle["text/plain"].startswith("reading <files>: 3 of 5")
    assert "reading &lt;files&gt;: 3 of 5" in bundle["text/html"]
    assert "width:60.0%" in bundle["text/html"]
    assert list(work) == [4]
    assert screen.bundles[0]["text/html"] == ""


def test_work_on_many_streams_has_one_too(screen: Screen) -> None:
    seen: list[str] = []

    def act(name: str) -> None:
        seen.extend(bundle["text/plain"] for bundle in screen.bundles)

    act_sequentially("abcd", act, lambda: 0)
    assert seen[-1].startswith("streams done: 3 of 4")


def test_a_bar_that_fails_does_not_fail_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(progress, "LISTENERS", [broken])
    assert list(progress.with_progress(range(3), 3, "reading")) == [0, 1, 2]


def test_a_script_has_no_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LISTENERS", [])
    show_in_notebook()
    assert progress.LISTENERS == []
