"""Groups of settings that streams, topics and tables inherit, and the source of each inherited value."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from retention.config.document import ConfigDocument, Mistake, Place
from retention.config.error_report import field_mistakes, nearest
from retention.config.stream import StreamConfig
from retention.config.table import TableConfig
from retention.config.topic import TopicConfig
from retention.config.written import Written

_KEY = "groups"
_PARENT = "group"
MODELS = (StreamConfig, TopicConfig, TableConfig)
"""The models whose keys a group may have."""
OF_ONE = {"name", "location"}
"""Keys that no group has."""
MOST_PARENTS = 16
"""The maximum number of ancestors of a group."""


@dataclass
class Groups:
    """The groups of a file, and for each stream, topic and table the places of its inherited keys."""

    document: ConfigDocument
    mistakes: list[Mistake] = field(default_factory=list)
    """The mistakes of the groups themselves."""
    _chains: dict[str, list[str]] = field(default_factory=dict)
    _inherited: dict[Place, dict[str, Place]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the groups, and record every mistake in them."""
        listed = self.document.values.get(_KEY)
        if listed is not None and not isinstance(listed, dict):
            text = f"{listed!r} is not a mapping; write {{NAME: {{key: value}}}}"
            self.mistakes.append(Mistake((_KEY,), text))
        self._settings = {
            name: {key: value for key, value in settings.items() if value is not None}
            for name, settings in (listed.items() if isinstance(listed, dict) else ())
            if isinstance(settings, dict)
        }
        for name, settings in listed.items() if isinstance(listed, dict) else ():
            if settings is not None and name not in self._settings:
                text = f"{settings!r} is not a mapping; write {{key: value}}"
                self.mistakes.append(Mistake((_KEY, name), text))
        for name, values in self._settings.items():
            self.mistakes += self._of_group(name, values)

    def inherit(self, place: Place, item: Mapping[str, object]) -> Mapping[str, object]:
        """The values of a stream, topic or table: its own, then its group's, then those of the group's parents."""
        parent = item.get(_PARENT)
        if not isinstance(parent, str):
            return item
        if parent not in self._settings:
            self.mistakes.append(Mistake((*place, _PARENT), self._unknown(parent)))
            return item
        values = {key: value for key, value in item.items() if value is not None}
        places: dict[str, Place] = {}
        for name in self._chain(parent):
            for key, value in self._settings[name].items():
                if key not in values and key not in OF_ONE:
                    values[key] = value
                    places[key] = (_KEY, name, key)
        self._inherited[place] = places
        return values

    def attributed(self, mistakes: Iterable[Mistake]) -> Iterator[Mistake]:
        """The mistakes; a mistake in an inherited value is reported once, at the group with the value."""
        met: dict[tuple[Place, str], list[str]] = defaultdict(list)
        known = {(mistake.place, mistake.text) for mistake in self.mistakes}
        for mistake in mistakes:
            in_group = self._group_place(mistake.place)
            if in_group is None:
                yield mistake
            elif (in_group, mistake.text) not in known:
                met[in_group, mistake.text].append(self._title(mistake.place))
        for (place, text), (first, *others) in met.items():
            more = f" and {len(others):,} more" if others else ""
            yield Mistake(place, f"{text} (met by {first}{more})")

    def written(self, place: Place, values: Mapping[str, object]) -> dict[str, Written]:
        """The values of a stream, topic or table in the file, by key."""
        inherited = self._inherited.get(place, {})
        title = self._title(place)
        values_by_key: dict[str, Written] = {}
        for key, value in values.items():
            at = inherited.get(key)
            source = title if at is None else f"group {at[1]}"
            if value is not None:
                values_by_key[key] = Written(source, self.document.line(at or (*place, key)), value)
        return values_by_key

    def _of_group(self, name: str, values: Mapping[str, object]) -> Iterator[Mistake]:
        """The mistakes of a group by itself, without its members."""
        place = (_KEY, name)
        if "name" in values:
            yield Mistake((*place, "name"), "a group has its name before the colon; remove the key")
        if "location" in values:
            text = "is that of one table; write it there"
            yield Mistake((*place, "location"), text)
        settings = {key: value for key, value in values.items() if key not in OF_ONE}
        yield from min(
            (field_mistakes(model, settings, place) for model in MODELS),
            key=len,
        )
        parent = values.get(_PARENT)
        if isinstance(parent, str) and parent not in self._settings:
            yield Mistake((*place, _PARENT), self._unknown(parent))
        elif len(self._chain(name)) > MOST_PARENTS + 1:
            text = f"has more than {MOST_PARENTS} groups above it; write fewer of them"
            yield Mistake((*place, _PARENT), text)
        elif self._closes(name):
            chain = " → ".join([*self._chain(name), name])
            text = f"leads back to itself ({chain}); remove one of these `group:`"
            yield Mistake((*place, _PARENT), text)

    def _chain(self, name: str) -> list[str]:
        """A group and its ancestors, each once, the nearest first; at most one more than permitted."""
        if name not in self._chains:
            chain = [name]
            while (parent := self._parent(chain[-1])) in self._settings and parent not in chain:
                if len(chain) > MOST_PARENTS + 1:
                    break
                chain.append(str(parent))
            self._chains[name] = chain
        return self._chains[name]

    def _closes(self, name: str) -> bool:
        """Whether a group is its own ancestor."""
        return self._parent(self._chain(name)[-1]) == name

    def _parent(self, name: str) -> str | None:
        parent = self._settings[name].get(_PARENT)
        return parent if isinstance(parent, str) else None

    def _unknown(self, name: str) -> str:
        close = nearest(name, self._settings)
        listed = ", ".join(self._settings) or "none at all"
        hint = f"did you mean `{close}`?" if close else f"there are {listed}"
        return f"no group is called {name!r}; {hint}"

    def _group_place(self, place: Place) -> Place | None:
        """The place in a group that supplies the value at a place; None: the value is not inherited."""
        for length in (2, 3):
            inherited = self._inherited.get(place[:length], {})
            key = place[length] if len(place) > length else None
            if key in inherited:
                return (*inherited[str(key)], *place[length + 1 :])
        return None

    def _title(self, place: Place) -> str:
        """The stream, topic or table at a place, in words."""
        values = self.document.values
        for part in place[:2]:
            values = values[part]
        config = values.get("config", values) if place[0] == "streams" else values
        return f"{str(place[0]).removesuffix('s')} {config.get('name', place[1])}"
