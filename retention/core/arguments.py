"""Arguments of public methods, checked against their annotations: a wrong one is refused before any work starts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from numbers import Integral
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from retention.core.units import INT64_MAX, parse_as_of
from retention.errors import UsageError
from retention.errors.printable import visible

Checked = TypeVar("Checked", bound=type)
Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")
_LONGEST_SHOWN = 40
_OPTIONAL = " | None"


@dataclass(frozen=True)
class Kind:
    """A kind of argument: its name, and the conversion of a value to it, which raises ValueError or TypeError."""

    noun: str
    read: Callable[[Any], Any]


def checked_class(owner: Checked) -> Checked:
    """A class with public methods that refuse arguments of a wrong kind with a `UsageError`."""
    for name, method in list(vars(owner).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(owner, name, checked(method))
    return owner


def checked(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A function that refuses arguments of a wrong kind, by the annotations of its parameters.

    Raises:
        UsageError: an argument has the wrong kind, is missing, or matches no parameter; raised by
    the returned function.
    """

    @cache
    def signature() -> inspect.Signature:
        return inspect.signature(function)

    @wraps(function)
    def call(*given: Parameters.args, **named: Parameters.kwargs) -> Result:
        try:
            bound = signature().bind(*given, **named)
        except TypeError as error:
            raise UsageError(
                f"{function.__name__}: {error}; nothing was done; it is called as "
                f"{function.__name__}{_written(signature())}"
            ) from error
        for name, value in bound.arguments.items():
            bound.arguments[name] = _read(function.__name__, signature().parameters[name], value)
        return function(*bound.args, **bound.kwargs)

    return call


def _written(signature: inspect.Signature) -> str:
    """The parameters of a function without `self`, as its caller writes them."""
    taken = [parameter for name, parameter in signature.parameters.items() if name != "self"]
    return str(inspect.Signature(taken)).replace("'", "")


def _read(function: str, parameter: inspect.Parameter, value: Any) -> Any:
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty:
        return value
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return tuple(_value(function, parameter.name, annotation, each) for each in value)
    return _value(function, parameter.name, annotation, value)


def _value(function: str, name: str, annotation: str, value: Any) -> Any:
    if value is None and annotation.endswith(_OPTIONAL):
        return None
    kind = _kind(annotation.removesuffix(_OPTIONAL))
    try:
        return kind.read(value)
    except (TypeError, ValueError) as error:
        reason = f" ({error})" if str(error) else ""
        raise UsageError(
            f"{function}: {name} is {_shown(value)}, and must be {kind.noun}{reason}; nothing was done; "
            f"help({function}) of its object lists its arguments"
        ) from error


def _shown(value: Any) -> str:
    text = visible(repr(value)).split("\n", 1)[0]
    if len(text) > _LONGEST_SHOWN:
        text = f"{text[:_LONGEST_SHOWN]}…"
    return "None" if value is None else f"{text} of type {type(value).__name__}"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    if "\0" in value:
        raise ValueError("it has a null character")
    value.encode()
    return value


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError
    number = int(value)
    if not -INT64_MAX - 1 <= number <= INT64_MAX:
        raise ValueError("numbers have 64 bits")
    return number


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _path(value: Any) -> str | Path:
    text = _text(str(value) if isinstance(value, Path) else value)
    if not text:
        raise ValueError("it is empty")
    return value if isinstance(value, Path) else text


def _texts(value: Any) -> Iterable[str]:
    """Several texts; a single text is one element, not its letters."""
    if isinstance(value, str):
        return [_text(value)]
    if isinstance(value, bytes):
        raise TypeError
    return [_text(each) for each in value]


def _numbers(value: Any) -> list[int]:
    if isinstance(value, str | bytes | Mapping):
        raise TypeError
    return [_number(each) for each in value] if isinstance(value, Iterable) else [_number(value)]


def _answered(value: Any) -> Any:
    """Delivered messages unchanged, or sequences; an array of integers remains an array."""
    if _is_a(value, "Messages") or _is_a(value, "Message"):
        return value
    is_array = getattr(value, "ndim", None) == 1 and getattr(value, "dtype", None) == "int64"
    return value if is_array else _numbers(value)


def _is_a(value: Any, name: str) -> bool:
    """Whether a value is of the named class, without importing that class."""
    return name in {base.__name__ for base in type(value).__mro__}


def _text_or_number(value: Any) -> str | int:
    return _text(value) if isinstance(value, str) else _number(value)


def _settings(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError
    for name in value:
        _text(name)
    return value


def _function(value: Any) -> Any:
    if not callable(value):
        raise TypeError
    return value


def _keyed(value: Any) -> Any:
    """Keys and their values, given as a mapping or as pairs."""
    if isinstance(value, Mapping):
        return _settings(value)
    pairs = [tuple(pair) for pair in value]
    for key, _ in pairs:
        _text(key)
    return pairs


def _plans(value: Any) -> list[Any]:
    if isinstance(value, str | bytes | Mapping):
        raise TypeError
    return [_kind("Plan").read(each) for each in value]


def _as_it_is(value: Any) -> Any:
    return value


def _instant(value: Any) -> Any:
    """An instant, unchanged: `now-1d` is resolved later, where the clock is read."""
    if value is not None:
        parse_as_of(value, now_ns=0)
    return value


def _choice(*names: str) -> Kind:
    def read(value: Any) -> str:
        if value not in names:
            raise ValueError
        return str(value)

    return Kind(" or ".join(map(repr, names)), read)


_KINDS = {
    "str": Kind("a text", _text),
    "int": Kind("a whole number", _number),
    "bool": Kind("True or False", _truth),
    "str | int": Kind("a text or a whole number", _text_or_number),
    "str | Path": Kind("a path", _path),
    "int | Iterable[int]": Kind("a whole number, or several", _numbers),
    "Iterable[str]": Kind("names", _texts),
    "Iterable[Plan]": Kind("plans", _plans),
    "Mapping[str, Any]": Kind("a dict with texts as keys", _settings),
    "Callable[[], int]": Kind("a function", _function),
    "Watch": Kind("a function", _function),
    "LeaveOut": Kind("a function", _function),
    "EngineName": _choice("auto", "spark", "local"),
    "EraName": _choice("0.8", "0.9"),
    "ReaderKind": _choice("consumer", "group"),
    "WholeRow": _choice("all"),
    "Instant": Kind("an instant", _instant),
    "Value": Kind("a value", _as_it_is),
    "Mapping[str, Value] | Iterable[tuple[str, Value]]": Kind("keys and values", _keyed),
    # filter, publish and append check their values themselves.
    "AnswerTarget": Kind("messages, or their sequences", _answered),
    "Mask | pa.Array | pa.ChunkedArray": Kind("a mask", _as_it_is),
    "Given": Kind("messages", _as_it_is),
    "DataFrame | Given": Kind("messages", _as_it_is),
}
"""An annotation, without `| None` → its kind."""


@cache
def _kind(annotation: str) -> Kind:
    """The kind of an annotation; a class is matched by its name."""
    known = _KINDS.get(annotation)
    if known is not None:
        return known

    def read(value: Any) -> Any:
        if not _is_a(value, annotation):
            raise TypeError
        return value

    return Kind(f"a {annotation}", read)
