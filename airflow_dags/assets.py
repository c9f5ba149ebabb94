"""Assets of streams: one is updated when messages of its stream went, and once for each run of the engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias, Context
from airflow.sdk.execution_time.context import InletEventsAccessors

from airflow_dags.steps import Counts

_EVENTS = 100
"""The newest events of a stream's asset among which that of an earlier try is looked for."""


def asset_of(dag_id: str, stream: str) -> Asset:
    """The asset of a stream that a DAG maintains."""
    return Asset(f"{dag_id}/{quote(stream)}")


def update_assets(outlets: Iterable[Any], stream: str, counts: Counts, context: Context) -> bool:
    """Update the assets of a stream; False: the try that committed the run has lived to do so.

    Airflow updates every asset of a task that succeeds. A task of several streams has an alias in place of these, and
    only what is added to it is updated.
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
    """Each outlet with the asset that it means for a stream; an alias is named as the DAG."""
    for outlet in outlets:
        is_alias = isinstance(outlet, AssetAlias)
        yield outlet, asset_of(outlet.name, stream) if is_alias else outlet


def _is_said(asset: Any, run: str) -> bool:
    newest = InletEventsAccessors([asset])[asset].ascending(ascending=False).limit(_EVENTS)
    return any((event.extra or {}).get("run") == run for event in newest)
