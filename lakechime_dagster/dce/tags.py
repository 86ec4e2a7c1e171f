"""Tags: what a producer says about a change, as an immutable map from text to text."""

from collections.abc import Iterator, Mapping

from lakechime_dagster.dce.text import checked_text
from lakechime_dagster.errors import InvalidValueError


class Tags(Mapping[str, str]):
    """An immutable, hashable map of tags, ordered by key.

    Keys have at most 128 characters, values at most 4,096; both are text that any store can hold.
    """

    __slots__ = ("_items", "_lookup")

    def __init__(self, tags: Mapping[str, str] | None = None) -> None:
        if tags is not None and not isinstance(tags, Mapping):
            raise InvalidValueError("tags", tags, "is not a map; give text keys with text values")
        lookup: dict[str, str] = {}
        for key, value in (tags or {}).items():
            checked_text("tags key", key, limit=128)
            lookup[key] = checked_text(f"tags[{key!r}]", value, limit=4096, empty=True)
        self._items = tuple(sorted(lookup.items()))
        self._lookup = dict(self._items)

    def __getitem__(self, key: str) -> str:
        return self._lookup[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._lookup)

    def __len__(self) -> int:
        return len(self._lookup)

    def __hash__(self) -> int:
        return hash(self._items)

    def __eq__(self, other: object) -> bool:
        return dict(self) == dict(other) if isinstance(other, Mapping) else NotImplemented

    def __repr__(self) -> str:
        return f"Tags({self._lookup!r})"

    def __reduce__(self) -> tuple[type["Tags"], tuple[dict[str, str]]]:
        return (Tags, (dict(self._lookup),))

    def carries(self, wanted: Mapping[str, str]) -> bool:
        """Whether every wanted tag is here with the same value."""
        return all(self._lookup.get(key) == value for key, value in wanted.items())

    def merged(self, other: Mapping[str, str]) -> "Tags":
        """These tags with the other's added; where both speak, the other's value."""
        return Tags({**self._lookup, **other})
