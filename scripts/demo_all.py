"""The whole demo: retention, then lifetimes, a work queue and a killed run, an Iggy topic, a mistake undone."""

from __future__ import annotations

from pathlib import Path

from scripts import demo, demo_clicks, demo_mistake, demo_orders, demo_planes


def main(directory: Path = demo.ROOT / "demo") -> None:
    """Show all parts in order."""
    flights, report = demo.show_retention(directory)
    demo_planes.show(directory, flights, demo.AS_OF, demo.tell)
    demo_orders.show(directory, demo.tell)
    demo_clicks.show(directory, demo.AS_OF, demo.tell)
    demo_mistake.show(directory, flights, demo.AS_OF, demo.tell)
    demo.try_next(directory, report)


if __name__ == "__main__":
    main()
