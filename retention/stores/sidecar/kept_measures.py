"""The cached measures of an idle stream: until something changes or becomes due, metrics need not open the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from retention.ports import VersionToken
from retention.storage import files
from retention.storage.crash_points import Step
from retention.storage.sidecar import JsonCodec, Sidecar


@dataclass(frozen=True)
class KeptMeasures:
    """The measures of a state with nothing due and no dead file."""

    from_ns: int
    """The instant of the measurement."""
    until_ns: int
    """The instant until which the measures are valid, exclusive."""
    small_files: int
    messages: int
    bytes: int


def recall_measures(
    root: str, token: VersionToken, settings: Mapping[str, object], as_of_ns: int
) -> KeptMeasures | None:
    """The measures of exactly this state under these settings; None unless they are valid at the instant."""
    kept = _sidecar(root).load(_state(token, settings))
    return kept if kept is not None and kept.from_ns <= as_of_ns < kept.until_ns else None


def keep_measures(
    root: str, token: VersionToken, settings: Mapping[str, object], measured: KeptMeasures
) -> None:
    """Store the measures of a state under its settings, if the storage is writable."""
    _sidecar(root).save(measured, _state(token, settings))


def _sidecar(root: str) -> Sidecar[KeptMeasures]:
    place = files.join(root, "_retention", "measures.json")
    codec = JsonCodec(asdict, lambda _, fields: KeptMeasures(**fields))
    return Sidecar(place, codec, Step.MEASURES_KEPT)


def _state(token: VersionToken, settings: Mapping[str, object]) -> dict[str, object]:
    return {"mark": asdict(token), "settings": dict(settings)}
