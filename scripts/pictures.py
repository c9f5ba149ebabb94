"""The example pictures of the documents, drawn from the flights of 2013: `python -m scripts.pictures`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from retention import open_warehouse
from retention.api.warehouse import Warehouse
from retention.core.units import DAY, parse_instant
from retention.plots.picture import Picture
from scripts.demo import flights

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
BEGIN, END = "2013-01-01T05:00:00Z", "2014-01-01T05:00:00Z"
CONFIG = """\
defaults:
  format: parquet
  segment_span: 1w
streams:
  - name: FLIGHTS
    subjects: [flights.>]
    max_age: 180d
    max_msgs_per_subject: 300
  - name: NEWARK
    subjects: [newark.>]
    max_age: 90d
    hold_for_consumers: {consumers: [billing], max_age: 365d}
  - name: EMPTY
    subjects: [empty.>]
"""


def example(directory: Path) -> Warehouse:
    """The warehouse of the pictures, made in an empty directory."""
    (directory / "retention.yaml").write_text(CONFIG)
    clock = [parse_instant(BEGIN)]
    warehouse = open_warehouse(directory, clock=lambda: clock[0])
    stream = warehouse.stream("FLIGHTS")
    year = flights()
    runs = []
    for part in _months(year):
        clock[0] = part["ts_ns"][-1].as_py()
        stream.publish(part)
        if part["ts_ns"][0].as_py() > parse_instant(BEGIN) + 150 * DAY:
            runs.append(stream.plan().apply(allow_large=True).run)
    warehouse.undo(runs[-2])
    clock[0] = parse_instant(END)
    newark = warehouse.stream("NEWARK")
    newark.publish(_of_newark(year))
    newark.consumers.add({"name": "billing", "filter_subject": "newark.UA.>"})
    newark.consumers.add({"name": "audit"})
    return warehouse


def pictures(warehouse: Warehouse) -> Iterator[tuple[str, Picture]]:
    """One picture of each kind, by name."""
    stream, newark = warehouse.stream("FLIGHTS"), warehouse.stream("NEWARK")
    yield "plan", stream.plan().plot()
    yield "due", stream.plot_due()
    yield "history", stream.plot_history()
    yield "consumers", newark.consumers.plot()
    yield "warehouse", warehouse.plot()
    policies: dict[str, dict[str, object]] = {
        "90 days": {"max_age": "90d"},
        "100 a plane": {"max_msgs_per_subject": 100},
    }
    at = ["now", "now+15d", "now+30d", "now+60d", "now+90d", "now+120d", "now+180d"]
    yield "simulate", stream.simulate(policies, at).plot()


def _of_newark(year: pa.Table) -> pa.Table:
    """The departures from Newark, with subjects of their own."""
    chosen = year.filter(pc.starts_with(year["subject"], "flights.EWR."))
    subjects = pc.replace_substring(chosen["subject"], "flights.EWR.", "newark.")
    return chosen.set_column(0, "subject", subjects)


def _months(year: pa.Table) -> Iterator[pa.Table]:
    size = year.num_rows // 12 + 1
    yield from (year.slice(first, size) for first in range(0, year.num_rows, size))


def main(target: Path = PICTURES) -> None:
    """Draw all of them as SVG."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        for name, picture in pictures(example(Path(directory))):
            picture.save(target / f"{name}.svg")


if __name__ == "__main__":
    main()
