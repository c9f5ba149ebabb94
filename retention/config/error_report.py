"""Validation of values as models: every mistake of a mapping at once, with the nearest valid choice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from retention.config.document import Mistake, Place
from retention.config.types import ConfigRefusal

Model = TypeVar("Model", bound=BaseModel)

_CLOSE = 0.6
_NO_LIST = "{0!r} is not a list; write [{0}]"
_NO_MAPPING = "{0!r} is not a mapping; write {{key: value}}"
_TEXTS = {
    "missing": "is missing; every mapping of this kind has one",
    "bool_type": "{0!r} is neither true nor false; write one of them",
    "string_type": '{0!r} is not text; quote it: "{0}"',
    "tuple_type": _NO_LIST,
    "list_type": _NO_LIST,
    "model_type": _NO_MAPPING,
    "dict_type": _NO_MAPPING,
}


def read_model(
    model: type[Model], values: Mapping[str, object], place: Place
) -> tuple[Model | None, list[Mistake]]:
    """Validate a mapping.

    Where fields cannot be read, the others are validated without them, so that refusals based on several fields are
    reported together.

    Returns:
        The model, or None and the mistakes.
    """
    try:
        return model.model_validate(values), []
    except ValidationError as error:
        details = error.errors()
    mistakes = [mistake for detail in details for mistake in _mistakes(model, detail, place)]
    broken = {_unreadable(detail["loc"]) for detail in details if detail["loc"]}
    unsure = broken | {_meant(model, inside) for inside in broken}
    return None, [*mistakes, *_remaining(model, values, place, unsure)] if broken else mistakes


def field_mistakes(
    model: type[BaseModel], values: Mapping[str, object], place: Place
) -> list[Mistake]:
    """The mistakes of single keys in a mapping that is part of a model's; missing keys are not mistakes."""
    try:
        model.model_validate(values)
    except ValidationError as error:
        return [
            mistake
            for detail in error.errors()
            if detail["type"] != "refusals" and not _is_omitted(detail)
            for mistake in _mistakes(model, detail, place)
        ]
    return []


def _is_omitted(detail: ErrorDetails) -> bool:
    """Whether a key of the mapping itself is missing."""
    return detail["type"] == "missing" and len(detail["loc"]) == 1


def _unreadable(inside: Place) -> Place:
    """The place to omit in order to read the rest: one key of a consumer, or otherwise of the whole mapping."""
    return inside[:3] if inside[0] == "consumers" else inside[:1]


def _meant(model: type[BaseModel], inside: Place) -> Place:
    key = nearest(str(inside[-1]), _keys_at(model, inside))
    return (*inside[:-1], key or inside[-1])


def _remaining(
    model: type[BaseModel], values: Mapping[str, object], place: Place, unsure: set[Place]
) -> Iterator[Mistake]:
    """Refusals that apply for any values at the places in `unsure`."""
    sound: Any = values
    for inside in unsure:
        sound = _without(sound, inside)
    try:
        model.model_validate(sound | ({"name": "unnamed"} if ("name",) in unsure else {}))
    except ValidationError as error:
        for refusal in _refusals(error.errors()):
            if not any(inside in unsure for inside in _rests_on(refusal)):
                yield _mistake(refusal, values, place)


def _without(values: Any, inside: Place) -> object:
    """A copy without a key; an item of a list is emptied, so that the others keep their indexes."""
    first, rest = inside[0], inside[1:]
    if isinstance(values, list):
        return [
            (_without(item, rest) if rest else {}) if at == first else item
            for at, item in enumerate(values)
        ]
    if rest and isinstance(values.get(first), list | dict):
        return {**values, first: _without(values[first], rest)}
    return {key: value for key, value in values.items() if key != first}


def _rests_on(refusal: ConfigRefusal) -> Iterator[Place]:
    yield refusal.within
    for key in refusal.keys:
        yield from ((*refusal.within, key), (key,))


def _refusals(details: Iterable[ErrorDetails]) -> Iterator[ConfigRefusal]:
    for detail in details:
        yield from detail.get("ctx", {}).get("refusals", ())


def _mistake(refusal: ConfigRefusal, values: Mapping[str, object], place: Place) -> Mistake:
    inner: Any = values
    for part in refusal.within:
        inner = inner[part]
    written = [key for key in refusal.keys if key in inner]
    return Mistake((*place, *refusal.within, (written or refusal.keys)[0]), refusal.text)


def _mistakes(model: type[BaseModel], detail: ErrorDetails, place: Place) -> Iterator[Mistake]:
    if detail["type"] == "refusals":
        values = detail["input"] if isinstance(detail["input"], Mapping) else {}
        for refusal in _refusals([detail]):
            yield _mistake(refusal, values, place)
        return
    yield Mistake((*place, *detail["loc"]), _text(model, detail))


def _text(model: type[BaseModel], detail: ErrorDetails) -> str:
    kind, value = detail["type"], detail.get("input")
    if kind == "extra_forbidden":
        return _unknown(str(detail["loc"][-1]), _keys_at(model, detail["loc"]))
    if kind == "literal_error":
        return _not_among(value, re.findall(r"'([^']*)'", detail["ctx"]["expected"]))
    if kind == "tuple_type" and _maps_names(model, detail):
        return (
            f"maps names to settings, and is a list; write `- name: {next(iter(detail['input']))}`, and below it its "
            "settings"
        )
    return _TEXTS[kind].format(value) if kind in _TEXTS else detail["msg"]


def _maps_names(model: type[BaseModel], detail: ErrorDetails) -> bool:
    """Whether a list of items with names was written as a mapping of those names."""
    written = detail["input"]
    is_mapping = isinstance(written, Mapping) and written and "name" not in written
    return bool(is_mapping) and "name" in _keys_at(model, (*detail["loc"], "name"))


def _unknown(key: str, known: Iterable[str]) -> str:
    close = nearest(key, known)
    hint = f"did you mean `{close}`?" if close else "docs/configuration.md lists the keys"
    return f"there is no such key; {hint}"


def _not_among(value: object, choices: list[str]) -> str:
    close = nearest(str(value), choices)
    hint = f"; did you mean `{close}`?" if close else ""
    return f"{value!r} is not one of {', '.join(choices)}{hint}"


def nearest(written: str, choices: Iterable[str]) -> str | None:
    """The choice closest to a text; case and separators are ignored."""
    plain = {re.sub("[-_ ]", "", choice).lower(): choice for choice in choices}
    close = get_close_matches(re.sub("[-_ ]", "", written).lower(), plain, 1, _CLOSE)
    return plain[close[0]] if close else None


def _keys_at(model: type[BaseModel], place: tuple[str | int, ...]) -> Iterable[str]:
    for part in place[:-1]:
        if isinstance(part, str):
            model = next(_models_in(model.model_fields[part].annotation), model)
    return model.model_fields


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
