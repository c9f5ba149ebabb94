"""Arguments of public methods, checked by pydantic: a wrong one is refused before any work starts."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    InstanceOf,
    PlainValidator,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidationError,
    WrapValidator,
)

from retention.core.units import INT64_MAX, parse_as_of
from retention.errors import UsageError
from retention.errors.printable import visible

Checked = TypeVar("Checked", bound=type)
Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")
_LONGEST_SHOWN = 40
_OPTIONAL = " | None"


def checked_class(owner: Checked) -> Checked:
    """A class with public methods that refuse arguments of a wrong type with a `UsageError`."""
    for name, method in list(vars(owner).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(owner, name, checked(method))
    return owner


def checked(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A function that refuses arguments of a wrong type, by the annotations of its parameters.

    Raises:
        UsageError: an argument has the wrong type, is missing, or matches no parameter; raised by
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
            taken = [known for name, known in signature().parameters.items() if name != "self"]
            written = str(inspect.Signature(taken)).replace("'", "")
            raise UsageError(
                f"{function.__name__}: {error}; nothing was done; it is called as {function.__name__}{written}"
            ) from error
        for name, value in bound.arguments.items():
            known = signature().parameters[name]
            if known.kind is known.VAR_POSITIONAL:
                bound.arguments[name] = tuple(_read(function, known, each) for each in value)
            elif known.kind is not known.VAR_KEYWORD and known.annotation is not known.empty:
                bound.arguments[name] = _read(function, known, value)
        return function(*bound.args, **bound.kwargs)

    return call


def _read(function: Callable[..., object], parameter: inspect.Parameter, value: object) -> Any:
    noun, adapter = _kind(parameter.annotation)
    if isinstance(value, Iterator) and "Iterable[" in parameter.annotation:
        value = list(value)  # outside of pydantic, which hides errors of the caller's iterator
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        cause = first["msg"].removeprefix("Value error, ") if first["type"] == "value_error" else ""
        raise UsageError(
            f"{function.__name__}: {parameter.name} is {_shown(value)}, and must be {noun}"
            f"{cause and f' ({cause})'}; nothing was done; help({function.__name__}) of its object lists its arguments"
        ) from error


def _shown(value: object) -> str:
    text = visible(repr(value)).split("\n", 1)[0]
    if len(text) > _LONGEST_SHOWN:
        text = f"{text[:_LONGEST_SHOWN]}…"
    return "None" if value is None else f"{text} of type {type(value).__name__}"


def _stored(text: str) -> str:
    """A text that UTF-8 and every store can hold."""
    if "\0" in text:
        raise ValueError("it has a null character")
    text.encode()
    return text


def _of_64_bits(number: int) -> int:
    if not -INT64_MAX - 1 <= number <= INT64_MAX:
        raise ValueError("numbers have 64 bits")
    return number


def _location(value: str | Path) -> str | Path:
    if not _stored(str(value)):
        raise ValueError("it is empty")
    return value


def _instant(value: Any) -> Any:
    """An instant, unchanged: `now-1d` is resolved later, where the clock is read."""
    if value is not None:
        parse_as_of(value, now_ns=0)
    return value


def _answered(value: Any, read: Callable[[Any], Any]) -> Any:
    """Delivered messages and arrays of sequences, unchanged; anything else is read as sequences."""
    is_array = _is_of_numpy(value, "ndarray") and value.ndim == 1 and value.dtype == "int64"
    if is_array or type(value).__name__ in {"Message", "Messages"}:
        return value
    return read(value)


def _plain(value: Any) -> Any:
    """A number of NumPy as one of Python; anything else unchanged."""
    return value.item() if _is_of_numpy(value, "generic") else value


def _is_of_numpy(value: object, name: str) -> bool:
    """Whether a value is an instance of a class of NumPy, which is loaded if there is such a value."""
    return isinstance(value, getattr(sys.modules.get("numpy"), name, ()))


def _instance_of(name: str) -> Any:
    """Instances of a class, by its name: the class itself is imported by its users alone."""

    def check(value: Any) -> Any:
        if name not in {base.__name__ for base in type(value).__mro__}:
            raise ValueError
        return value

    return Annotated[Any, PlainValidator(check)]


_Text = Annotated[StrictStr, AfterValidator(_stored)]
_Number = Annotated[
    StrictInt,
    AfterValidator(_of_64_bits),
    BeforeValidator(_plain),
]
_Numbers = Annotated[
    list[_Number],
    BeforeValidator(lambda value: value if isinstance(value, Iterable) else [value]),
]
_Texts = Annotated[
    list[_Text], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
]
_Instant = Annotated[Any, PlainValidator(_instant)]
_Instants = Annotated[
    list[_Instant],
    BeforeValidator(lambda value: [value] if isinstance(value, str | int | date) else value),
]
_KINDS: Mapping[str, tuple[str, Any]] = {
    "str": ("a text", _Text),
    "int": ("a whole number", _Number),
    "bool": ("True or False", StrictBool),
    "str | int": ("a text or a whole number", _Text | _Number),
    "str | float": ("a share, such as '1%'", _Text | StrictFloat | _Number),
    "str | Path": ("a path", Annotated[StrictStr | InstanceOf[Path], AfterValidator(_location)]),
    "int | Iterable[int]": ("a whole number, or several", _Numbers),
    "Iterable[str]": ("names", _Texts),
    "Iterable[Plan]": ("plans", list[_instance_of("Plan")]),  # type: ignore[misc]  # made at run time
    "Iterable[TablePlan]": ("plans", list[_instance_of("TablePlan")]),  # type: ignore[misc]  # made at run time
    "Mapping[str, object]": ("a dict with texts as keys", dict[_Text, Any]),
    "Mapping[str, Value] | Iterable[tuple[str, Value]]": (
        "keys and values",
        dict[_Text, Any] | list[tuple[_Text, Any]],
    ),
    "Mapping[str, object] | Iterable[Mapping[str, object]]": (
        "a dict with texts as keys, or several",
        dict[_Text, Any] | list[dict[_Text, Any]],
    ),
    "EngineName": ("'auto', 'spark' or 'local'", Literal["auto", "spark", "local"]),
    "EraName": ("'0.8' or '0.9'", Literal["0.8", "0.9"]),
    "ReaderKind": ("'consumer' or 'group'", Literal["consumer", "group"]),
    "WholeRow": ("'all'", Literal["all"]),
    "Instant": ("an instant", _Instant),
    "Iterable[Instant]": ("instants", _Instants),
    "Mapping[str, Mapping[str, object]]": ("a dict of dicts", dict[_Text, dict[_Text, Any]]),
    "AnswerTarget": (
        "messages, or their sequences",
        Annotated[_Numbers, WrapValidator(_answered)],
    ),
    **dict.fromkeys(("Callable[[], int]", "Watch", "LeaveOut"), ("a function", Callable)),
    # Their methods read these themselves.
    **dict.fromkeys(
        ("Ranges", "Value", "Given", "DataFrame | Given", "Mask | pa.Array | pa.ChunkedArray"),
        ("", Any),
    ),
}
"""An annotation, without `| None` → its name in sentences, and the type that reads it; any other names a class."""


@cache
def _kind(annotation: str) -> tuple[str, TypeAdapter[Any]]:
    name = annotation.removesuffix(_OPTIONAL)
    is_class = name not in _KINDS and name.isidentifier()
    noun, read = (f"a {name}", _instance_of(name)) if is_class else _KINDS[name]
    return noun, TypeAdapter(read | None if annotation.endswith(_OPTIONAL) else read)
