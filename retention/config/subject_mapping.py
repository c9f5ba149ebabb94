"""Validation of pairs of subjects as the server's subject transforms (ADR-30)."""

from __future__ import annotations

import re

_FUNCTION = re.compile(
    r"\{\{\s*([pP]artition|[wW]ildcard|[sS]plit[fF]rom[lL]eft|[sS]plit[fF]rom[rR]ight"
    r"|[sS]lice[fF]rom[lL]eft|[sS]lice[fF]rom[rR]ight|[lL]eft|[rR]ight|[sS]plit|[rR]andom)"
    r"\s*\((.*)\)\s*\}\}"
)
_INTEGER = re.compile(r" *[-+]?[0-9]+ *")
_INT32_MAX = 2**31 - 1
_SHORTEST_FUNCTION = 5


def is_mapping(source: str, destination: str) -> bool:
    """Whether streams, mirrors and sources accept the pair: a transform that makes no whitespace."""
    plain = [token for token in destination.split(".") if not _looks_like_function(token)]
    has_space = any(re.search(r"[\t\n\f\r ]", token) for token in plain)
    return is_transform(source, destination) and not has_space


def is_transform(source: str, destination: str) -> bool:
    """Whether republishing accepts the pair: both or neither end in `>`, and placeholders match the `*`."""
    source_tokens, tokens = (source or ">").split("."), destination.split(".")
    if not destination:
        return True
    if not all([*source_tokens, *tokens]) or ">" in [*source_tokens[:-1], *tokens[:-1]]:
        return False
    if "*" in tokens or (tokens[-1] == ">") != (source_tokens[-1] == ">"):
        return False
    wildcards = source_tokens.count("*")
    has_wildcard = wildcards > 0 or source_tokens[-1] == ">"
    return all(_fits(token, wildcards if has_wildcard else None) for token in tokens)


def function_of(token: str) -> tuple[str, list[str]] | None:
    """The function that a token of a destination names, in lower case, and its arguments; None: it names none."""
    function = _FUNCTION.fullmatch(token)
    return (function[1].lower(), re.split(r",\s*", function[2])) if function else None


def _fits(token: str, wildcards: int | None) -> bool:
    """Whether a token of the destination can be made from a source with this many `*` (None: neither `*` nor `>`)."""
    if re.fullmatch(r"\$[-+]?[0-9]+", token):
        return wildcards is not None and int(token[1:]) <= wildcards
    if not _looks_like_function(token):
        return True
    function = function_of(token)
    if function is None:
        return False
    kind, arguments = function
    if not _has_good_arguments(kind, arguments):
        return False
    if wildcards is None:
        return kind in {"partition", "random"}
    return all(index <= wildcards for index in _indexes(kind, arguments))


def _looks_like_function(token: str) -> bool:
    return len(token) >= _SHORTEST_FUNCTION and token.startswith("{{") and token.endswith("}}")


def _has_good_arguments(kind: str, arguments: list[str]) -> bool:
    count = {"wildcard": 1, "random": 1, "partition": len(arguments)}.get(kind, 2)
    integers = arguments[:1] if kind == "split" else arguments
    if len(arguments) != count or not all(map(_INTEGER.fullmatch, integers)):
        return False
    if kind == "split":
        return " " not in arguments[1]
    return kind not in {"partition", "random"} or int(arguments[0]) <= _INT32_MAX


def _indexes(kind: str, arguments: list[str]) -> list[int]:
    match kind:
        case "random":
            return []
        case "partition":
            return [int(argument) for argument in arguments[1:]]
        case _:
            return [int(arguments[0])]
