"""The server's refusals of mirrors, sources, subject transforms and republishing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING

from retention.config.subject_mapping import is_mapping, is_transform
from retention.config.types import INVALID_CONFIG, ConfigRefusal, refusal
from retention.core.subjects import (
    is_subset,
    is_valid_filter,
    is_valid_name,
    is_valid_subject,
    overlap,
)

if TYPE_CHECKING:
    from retention.config.nested import StreamSource, SubjectTransform
    from retention.config.stream_fields import StreamFields

_API_PREFIX = "$JS.API"


def origin_refusals(stream: StreamFields) -> Iterator[ConfigRefusal]:
    """The refusals of a stream's mirror, sources, subject transform and republishing."""
    if stream.mirror is not None:
        yield from _mirror(stream, stream.mirror)
    yield from _sources(stream)
    for key, origin in _origins(stream):
        yield from _external(key, origin)
    if stream.subject_transform is not None:
        yield from _transform("subject_transform", stream.subject_transform, (10155, 10156))
    if stream.republish is not None:
        yield from _republish(stream)


def _origins(stream: StreamFields) -> Iterator[tuple[str, StreamSource]]:
    if stream.mirror is not None:
        yield "mirror", stream.mirror
    for source in stream.sources:
        yield "sources", source


def _mirror(stream: StreamFields, mirror: StreamSource) -> Iterator[ConfigRefusal]:
    excluded = {
        "first_seq": 10143,
        "subjects": 10034,
        "sources": 10031,
        "allow_msg_counter": 10173,
        "allow_atomic": 10198,
        "allow_batched": 10209,
        "allow_msg_schedules": 10186,
        "subject_delete_marker_ttl": INVALID_CONFIG,
    }
    for key, code in excluded.items():
        if getattr(stream, key):
            markers = "subject delete markers forbidden on mirrors"
            why = markers if key == "subject_delete_marker_ttl" else f"a mirror cannot have {key}"
            yield refusal(f"{key} mirror", f"{why}; leave it out", code)
    if mirror.external is None and not is_valid_name(mirror.name):
        yield refusal("mirror", f"{mirror.name!r} is not a stream's name", 10142)
    if not _has_good_consumer(mirror):
        yield refusal("mirror", _BAD_CONSUMER, 10213)
    yield from _filters("mirror", mirror, (10150, 10151, 10154))
    for first, second in combinations(mirror.subject_transforms, 2):
        if overlap(first.src, second.src):
            text = f"the transforms of {first.src!r} and {second.src!r} overlap"
            yield refusal("mirror", text, 10152)


def _sources(stream: StreamFields) -> Iterator[ConfigRefusal]:
    if stream.sources and stream.allow_msg_schedules:
        text = "a stream with sources cannot schedule messages; leave it out"
        yield refusal("allow_msg_schedules sources", text, 10187)
    counts = Counter(
        source.model_dump_json(include=_IDENTITY, round_trip=True) for source in stream.sources
    )
    if any(count > 1 for count in counts.values()):
        yield refusal("sources", "the same source is listed twice; remove one", 10140)
    for source in stream.sources:
        yield from _source(source)
    named = [(source.name, source.consumer.name) for source in stream.sources if source.consumer]
    if len(set(named)) < len(named):
        yield refusal("sources", "two sources of one stream share a consumer", 10216)


def _source(source: StreamSource) -> Iterator[ConfigRefusal]:
    if not is_valid_name(source.name):
        yield refusal("sources", f"{source.name!r} is not a stream's name", 10141)
    if not _has_good_consumer(source):
        yield refusal("sources", _BAD_CONSUMER, 10215)
    yield from _filters("sources", source, (10144, 10145, 10146))
    for first, second in combinations(source.subject_transforms, 2):
        if is_subset(first.src, second.src) or is_subset(second.src, first.src):
            text = f"the transforms of {first.src!r} and {second.src!r} overlap"
            yield refusal("sources", text, 10147)


_IDENTITY = {"name", "filter_subject", "subject_transforms", "external"}
_BAD_CONSUMER = (
    "its consumer needs a name and a deliver_subject without wildcards, and excludes"
    " opt_start_seq, opt_start_time and filter_subject"
)


def _has_good_consumer(origin: StreamSource) -> bool:
    consumer = origin.consumer
    if consumer is None:
        return True
    starts = origin.opt_start_seq or origin.opt_start_time or origin.filter_subject
    named = is_valid_name(consumer.name) and is_valid_subject(consumer.deliver_subject)
    return named and not starts


def _filters(
    key: str, origin: StreamSource, codes: tuple[int, int, int]
) -> Iterator[ConfigRefusal]:
    both, bad_source, bad_destination = codes
    if origin.filter_subject and origin.subject_transforms:
        text = "filter_subject and subject_transforms exclude each other; choose one"
        yield refusal(key, text, both)
    if origin.filter_subject and not is_valid_filter(origin.filter_subject):
        yield refusal(key, f"filter_subject {origin.filter_subject!r} is not a subject", 10049)
    for transform in origin.subject_transforms:
        yield from _transform(key, transform, (bad_source, bad_destination))


def _transform(
    key: str, transform: SubjectTransform, codes: tuple[int, int]
) -> Iterator[ConfigRefusal]:
    bad_source, bad_destination = codes
    if transform.src and not is_valid_filter(transform.src):
        yield refusal(key, f"src {transform.src!r} is not a subject", bad_source)
    elif not is_mapping(transform.src, transform.dest):
        text = (
            f"dest {transform.dest!r} does not fit src {transform.src!r}: > must end both or"
            " none, and {{wildcard(n)}} must name one of the * in src"
        )
        yield refusal(key, text, bad_destination)


def _external(key: str, origin: StreamSource) -> Iterator[ConfigRefusal]:
    external = origin.external
    if external is None:
        return
    if external.deliver and not is_valid_subject(external.deliver):
        text = f"the delivery prefix {external.deliver!r} must be a subject without wildcards"
        yield refusal(key, text, 10024)
    if external.api and not is_valid_subject(external.api):
        yield refusal(key, f"the api prefix {external.api!r} must be a subject without wildcards")
    elif external.api and overlap(external.api, _API_PREFIX):
        yield refusal(key, f"the api prefix must not be this server's own {_API_PREFIX}", 10021)


def _republish(stream: StreamFields) -> Iterator[ConfigRefusal]:
    republish = stream.republish
    if republish is None:
        return
    source, destination = republish.src or ">", republish.dest
    transform = stream.subject_transform
    if source == destination == ">" and transform and stream.subjects == (transform.src,):
        source = destination = transform.dest
    subjects = stream.subjects or (() if stream.mirror or stream.sources else (stream.name,))
    if any(overlap(destination, subject) for subject in subjects):
        yield refusal("republish subjects", f"dest {destination!r} returns into the stream")
    elif not is_transform(source, destination):
        yield refusal("republish", f"dest {destination!r} does not fit src {source!r}")
