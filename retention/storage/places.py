"""Locations as users write them, normalized to one internal form: a path, or `s3://`."""

from __future__ import annotations

import re

from retention.errors import UsageError

S3, _SPARKS_S3 = ON_S3 = ("s3://", "s3a://")
_FILE = "file:///"
_HADOOPS_FILE, _HADOOPS_S3 = re.compile(r"^file:(//)?"), re.compile(r"^s3[an]://")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_NAME = r"(?:[A-Za-z_][A-Za-z0-9_]*|`[^`]+`)"
_TABLE = re.compile(rf"{_NAME}(?:\.{_NAME}){{2}}")
_KNOWN = {
    "dbfs": "is a path of Databricks' own file system, which only Databricks opens; write /dbfs/… where that is "
    "mounted, or the s3:// prefix that lies behind it",
    "file": "is not how a local file is written; write file:///path, or the path alone",
    "s3": "has one slash too few; write s3://bucket/prefix",
    "s3a": "has one slash too few; write s3://bucket/prefix",
}
_MISSPELT = ("file", "s3", "s3a")
_OTHER = "is neither a path nor s3://bucket/prefix; write one of them"
_IS_TABLE = (
    "is a table's name in a catalog, and none is asked here; write the path or the s3:// prefix at which it lies, or "
    "./{0} for a directory of that name"
)


def place_of(text: str) -> str:
    """The normalized form of a location: `s3a://` becomes `s3://`, and `file:///path` becomes the path.

    Raises:
        UsageError: it is neither a path nor an object-store location.

    >>> place_of("s3a://bucket/lake"), place_of("file:///srv/lake"), place_of("srv/lake")
    ('s3://bucket/lake', '/srv/lake', 'srv/lake')
    """
    if text.startswith(_SPARKS_S3):
        return S3 + text.removeprefix(_SPARKS_S3)
    if text.startswith(_FILE):
        return "/" + text.removeprefix(_FILE).lstrip("/")
    why = refused_scheme(text)
    if why is not None:
        raise UsageError(f"{text!r} {why}")
    return text


def hadoop_place(location: str) -> str:
    """A location as Hadoop and table formats name it, without the differences between the names of one file system.

    >>> hadoop_place("file:/lake/t"), hadoop_place("file:///lake/t"), hadoop_place("s3a://bucket/t")
    ('/lake/t', '/lake/t', 's3://bucket/t')
    """
    return _HADOOPS_S3.sub(S3, _HADOOPS_FILE.sub("", location))


def refused_scheme(text: str) -> str | None:
    """The reason why a text with a scheme is not a place, with the correct spelling; None for a path or `s3://`."""
    match = None if text.startswith((*ON_S3, _FILE)) else _SCHEME.match(text)
    return None if match is None else _KNOWN.get(match[1].lower(), _OTHER)


def only_spark_reaches(text: str) -> bool:
    """Whether a place has a scheme that no storage here supports and that may be one of Hadoop's.

    >>> only_spark_reaches("hdfs://namenode/lake"), only_spark_reaches("s3://bucket/lake"), only_spark_reaches("a/b")
    (True, False, False)
    """
    match = None if text.startswith((*ON_S3, _FILE)) else _SCHEME.match(text)
    return match is not None and match[1].lower() not in _MISSPELT


def refused_table(text: str) -> str | None:
    """The reason why a three-part name is not a directory, with the correct spelling; None for every other text."""
    return _IS_TABLE.format(text) if _TABLE.fullmatch(text) else None


def spellings(place: str) -> tuple[str, ...]:
    """Every spelling of a place: the normalized form first, then Spark's."""
    if place.startswith(S3):
        return place, _SPARKS_S3 + place.removeprefix(S3)
    return (place,)


def delta_name(place: str) -> str:
    """The name of a Delta table in Spark SQL, from its place.

    >>> delta_name("s3://bucket/lake/a"), delta_name("/srv/it`s")
    ('delta.`s3a://bucket/lake/a`', 'delta.`/srv/it``s`')
    """
    quoted = spellings(place)[-1].replace("`", "``")
    return f"delta.`{quoted}`"
