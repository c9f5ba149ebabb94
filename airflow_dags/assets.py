"""Assets of streams: each is updated after removals from its stream, once for each run of the engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias, Context
from airflow.sdk.execution_time.context import InletEventsAccessors

from airflow_dags.steps import Counts

_EVENTS = 100
"""The number of newest events of a stream's asset to search for the event of an earlier try."""


def asset_of(dag_id: str, stream: str) -> Asset:
    """The asset of a stream that a DAG maintains."""
    return Asset(f"{dag_id}/{quote(stream)}")


def update_assets(outlets: Iterable[Any], stream: str, counts: Counts, context: Context) -> bool:
    """Update the assets of a stream; False: an earlier try of the task did so already.

    Airflow updates every asset of a successful task. A task of several streams has an alias
    instead, and only assets added to it are updated.
    """
    events = context["outlet_events"]
    is_updated = True
    for outlet, asset in _assets(outlets, stream):
        if counts.get("is_of_earlier_try") and _is_said(asset, counts["run"]):
            is_updated = False
        elif isinstance(outlet, AssetAlias):
            events[outlet].add(asset, extra=counts)
        else:
            events[outlet].extra = counts
    return is_updated


def _assets(outlets: Iterable[Any], stream: str) -> Iterator[tuple[Any, Any]]:
    """Each outlet with its asset for a stream; an alias has the name of the DAG."""
    for outlet in outlets:
        is_alias = isinstance(outlet, AssetAlias)
        yield outlet, asset_of(outlet.name, stream) if is_alias else outlet


def _is_said(asset: Any, run: str) -> bool:
    newest = InletEventsAccessors([asset])[asset].ascending(ascending=False).limit(_EVENTS)
    return any((event.extra or {}).get("run") == run for event in newest)
