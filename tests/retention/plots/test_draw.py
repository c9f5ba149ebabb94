from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from retention.errors import UsageError
from retention.plots.charts import Chart, Curve, Curves, Panel, Rows, Series, Stack
from retention.plots.draw import draw
from retention.plots.palette import STYLES
from retention.plots.picture import INK, Picture
from retention.plots.warehouse import Measured, warehouse_chart
from retention.plots.wording import short_name
from retention.schemas.rule_names import RULE_NAMES
from tests.support.sandboxes import ORDERS, lines, opened

HOSTILE = (
    "<script>alert(1)</script>",
    "$\\frac{$ 5 $^$",
    "a\u202eb\x1b[31m\ufffe\x00",
    "\u0645\u0631\u062d\u0628\u0627 \u6771\u4eac \U0001f600",
    ']]>&amp;"\' style="fill: #1f2328"',
    "x" * 65_536,
    "",
)


def texts(picture: Picture) -> list[str]:
    root = ElementTree.fromstring(picture.svg)  # noqa: S314  (our own)
    return ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]


def test_hostile_names_are_texts_of_a_small_picture() -> None:
    chart = warehouse_chart([Measured(name, 7, 0) for name in HOSTILE], 0, 0)
    picture = draw(chart)
    shown = texts(picture)
    assert {short_name(name, 18) for name in HOSTILE if name} <= {*shown}
    assert "<script" not in picture.inline
    assert len(picture.svg) < 30_000


def test_a_picture_has_the_colour_of_its_page_and_says_what_it_shows() -> None:
    stack = Stack(np.arange(3.0), (Series("kept", np.ones(2)), Series("max_age", np.ones(2))))
    picture = draw(Chart("A headline", "A caption.", (stack,)))
    root = ElementTree.fromstring(picture.inline)  # noqa: S314  (our own)
    assert [root[at].text for at in (0, 1)] == ["A headline", "A caption."]
    assert root.get("role") == "img"
    assert "currentColor" in picture.inline
    assert INK not in picture.inline
    assert "<style" not in picture.inline
    assert "prefers-color-scheme:dark" in picture.svg
    assert {"kept", "max_age"} <= {*texts(picture)}
    assert not [
        word for word in ("http://", "https://") if word in picture.inline.split("\n", 1)[1]
    ]


def test_the_same_chart_is_the_same_picture_whatever_the_caller_has_set() -> None:
    import matplotlib as mpl

    chart = Chart(
        "H", "C", (Stack(np.arange(3.0), (Series("undone", np.ones(2)),), is_time=False),)
    )
    before = draw(chart)
    with mpl.rc_context({"text.usetex": True, "font.size": 40, "axes.facecolor": "black"}):
        assert draw(chart).svg == before.svg
        assert mpl.rcParams["font.size"] == 40


def test_a_picture_is_saved_by_the_end_of_its_name(tmp_path: Path) -> None:
    picture = draw(Chart("Nothing", "No messages."))
    picture.save(tmp_path / "a.png")
    picture.save(str(tmp_path / "a.svg"))
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == picture.svg
    assert "matplotlib.pyplot" not in sys.modules
    with pytest.raises(UsageError, match=r"saved as \.svg or \.png; nothing was written"):
        picture.save(tmp_path / "a.pdf")


def test_one_instant_and_equal_bounds_are_drawn() -> None:
    day = np.array([16_000.0])
    curve = Curve("configured", day, np.array([5.0]), np.array([5.0]))
    panel = Panel("", (Series("kept", np.zeros(1)),), str)
    assert texts(draw(Chart("H", "C", (Curves((curve,)),))))
    assert "0" in texts(draw(Chart("H", "C", (Rows(("kept",), (panel,)),))))


def test_no_two_rules_look_alike_in_a_pass() -> None:
    assert {*RULE_NAMES} <= {*STYLES}
    for rules in ((*RULE_NAMES[:7], "max_subjects", "delete_retention"), RULE_NAMES[7:13]):
        assert len({STYLES[rule] for rule in ("kept", *rules)}) == len(rules) + 1


def test_every_picture_of_the_api_is_drawn(tmp_path: Path) -> None:
    hold = {"consumers": ["c"], "max_age": "90d"}
    warehouse = opened(tmp_path, {**ORDERS, "hold_for_consumers": hold})
    stream = warehouse.stream("ORDERS")
    stream.publish(lines(240))
    stream.consumers.add({"name": "c", "filter_subject": "orders.>"})
    assert stream.consumers.plot().headline == "ORDERS: 73 messages are held back for c"
    assert stream.plot_due().headline == "ORDERS: 0 to 240 of 240 messages fall due within 30 days"
    simulated = stream.simulate({"a": {"max_age": "3d"}}).plot()
    assert simulated.headline == "ORDERS: messages that 2 policies would keep"
    stream.consumers.remove("c")
    stream.consumers.add({"name": "c", "filter_subject": "orders.none"})
    warehouse.undo(stream.plan().apply(allow_large=True).run)
    assert (
        stream.plot_history().headline == "ORDERS: 0 runs removed 0 messages (0 B); 1 more undone"
    )
    assert warehouse.plot().headline.startswith("1 stream (")
    assert repr(simulated).endswith("Show it in a notebook, or save(…) it as .svg or .png")


def test_without_matplotlib_a_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"pip install 'lake-retention\[plots\]'"):
        draw(Chart("H", "C"))
