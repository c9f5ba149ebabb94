"""Versions of the Delta protocol, and the features that the older ones imply."""

from __future__ import annotations

FEATURE_READER, FEATURE_WRITER = 3, 7
"""The newest versions; a table with them lists its features by name."""
_BY_WRITER_VERSION = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}


def implied_features(writer: int) -> set[str]:
    """The features that a writer version implies; none from the version on that lists them."""
    if writer >= FEATURE_WRITER:
        return set()
    return {
        feature
        for version, implied in _BY_WRITER_VERSION.items()
        if version <= writer
        for feature in implied
    }
