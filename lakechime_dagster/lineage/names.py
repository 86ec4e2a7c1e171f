"""Under which name of the lake a data set goes that others name: by its location, by an alias that is declared, else outside."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from lakechime_dagster.errors import InvalidValueError

EVERY = ".*"  # at the end of an alias: all names below
_SESSION = "spark_catalog."  # what Spark calls the catalog that has no name
_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "wasbs"}


@dataclass(frozen=True)
class Names:
    """The names of tables, where they lie, and what others call them.

    `aliases` are from what others say to a table of the lake: a table for a table, or `hive.*` to `*` or to `bronze.*` for all
    below. Names are told apart without regard to letter case, as engines do.
    """

    tables: tuple[str, ...] = ()
    locations: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for said, meant in self.aliases.items():
            if said.endswith(EVERY) != (meant == "*" or meant.endswith(EVERY)):
                raise InvalidValueError("aliases", said, f"means {meant!r}; end both with .*, or neither, such as 'hive.*': '*'")

    def with_tables(self, tables: Iterable[str]) -> "Names":
        """The same with more tables."""
        more = tuple(dict.fromkeys((*self.tables, *tables)))
        return self if more == self.tables else Names(more, self.locations, self.aliases)

    def of(self, written: str) -> str | None:
        """The table of the lake that is called so, or None."""
        name = written.casefold().removeprefix(_SESSION)
        if name in self._aliases:
            return self._aliases[name]
        if name in self._tables:
            return self._tables[name]
        for said, meant in self._prefixes:
            if name.startswith(said):
                found = self._tables.get(meant + name[len(said) :])
                if found is not None:
                    return found
        return None

    def at(self, location: str) -> str | None:
        """The table of the lake that lies there, or None."""
        return self._locations.get(normalised(location))

    def holding(self, location: str) -> str | None:
        """The table of the lake that lies there or, the nearest first, in a folder that this is below, or None."""
        scheme, mark, path = normalised(location).partition("://")
        parts = path.split("/")
        above = (scheme + mark + "/".join(parts[:end]) for end in range(len(parts), 0, -1))
        return next((self._locations[one] for one in above if one in self._locations), None)

    def has_below(self, location: str) -> bool:
        """Whether tables of the lake lie in folders below."""
        return any(one.startswith(f"{normalised(location)}/") for one in self._locations)

    def of_dataset(self, namespace: str, name: str) -> str | None:
        """The table of the lake that OpenLineage calls so: by location, by alias with its namespace or without, by name."""
        location = name if namespace.rstrip(":/").casefold() == "file" else f"{namespace.rstrip('/')}/{name.lstrip('/')}"
        return self.at(location) or self.of(f"{namespace}/{name}") or self.of(name)

    @cached_property
    def _tables(self) -> dict[str, str]:
        return {name.casefold(): name for name in self.tables}

    @cached_property
    def _aliases(self) -> dict[str, str]:
        return {said.casefold(): meant for said, meant in self.aliases.items() if not said.endswith(EVERY)}

    @cached_property
    def _prefixes(self) -> list[tuple[str, str]]:
        """The longest first."""
        several = [(said[:-1].casefold(), meant[:-1].casefold()) for said, meant in self.aliases.items() if said.endswith(EVERY)]
        return sorted(several, key=lambda one: -len(one[0]))

    @cached_property
    def _locations(self) -> dict[str, str]:
        return {normalised(location): table for table, location in self.locations.items()}


def external(namespace: str, name: str) -> str:
    """The name of a data set outside of the lake."""
    return f"{namespace.rstrip('/')}/{name.lstrip('/')}" if namespace else name


def outside(path: str) -> str:
    """The name of what lies there, outside of the lake."""
    location = normalised(path)
    scheme, _, rest = location.partition("://")
    return external(scheme, rest) if scheme == "file" else location


def normalised(location: str) -> str:
    """A location by which two spellings of it are one."""
    scheme, mark, rest = location.partition("://")
    if not mark:
        scheme, rest = "file", location.removeprefix("file:")
    scheme = _SCHEMES.get(scheme.lower(), scheme.lower())
    path = "/".join(part for part in rest.split("/") if part)
    return f"{scheme}://{path}"
