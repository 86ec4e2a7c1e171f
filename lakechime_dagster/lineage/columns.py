"""Columns of data sets, how one derives from another, and the record of a run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, reduce, total_ordering
from typing import TYPE_CHECKING, Any

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.tables.names import folded

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, TypeAdapter


@total_ordering
@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column, or with None as `column` the data set itself.

    `table` is the name of a table of the lake, or of a data set outside: its namespace, a slash and
    its name there.
    """

    table: str
    column: str | None = None

    def __lt__(self, other: "ColumnRef") -> bool:
        """A data set comes before its columns."""
        return (self.table, self.column is not None, self.column or "") < (
            other.table,
            other.column is not None,
            other.column or "",
        )

    @property
    def folded(self) -> "ColumnRef":
        """The same column in whatever letter case its name is written: by it columns compare."""
        return self if self.column is None else ColumnRef(self.table, folded(self.column))

    def __str__(self) -> str:
        return self.table if self.column is None else f"{self.table}.{self.column}"


class Kind(StrEnum):
    """How a source takes part; the first three are DIRECT, the others INDIRECT.

    IDENTITY: the value as it is. TRANSFORMATION: a function of it. AGGREGATION: of it in several
    rows. INDIRECT ones say which rows there are, or which of several values is taken. DRIVER is
    ours: a value that went through the driver program.
    """

    IDENTITY = "identity"
    TRANSFORMATION = "transformation"
    AGGREGATION = "aggregation"
    JOIN = "join"
    GROUP_BY = "group_by"
    FILTER = "filter"
    SORT = "sort"
    WINDOW = "window"
    CONDITIONAL = "conditional"
    DRIVER = "driver"

    @property
    def is_direct(self) -> bool:
        return self in _DIRECT

    def then(self, outer: "Kind") -> "Kind":
        """The kind of a source of a source: INDIRECT stays so, of two DIRECT ones the stronger
        holds.
        """
        if self is outer or self not in _DIRECT:
            return self
        if outer not in _DIRECT:
            return outer
        return max(self, outer, key=_DIRECT.index)


_DIRECT = (Kind.IDENTITY, Kind.TRANSFORMATION, Kind.AGGREGATION)
Taking = tuple[Kind, bool]  # how a value goes on, and whether it is masked by that


def after(inner: Taking, outer: Taking) -> Taking:
    """One way of taking part after another. Of what is masked the kind is that of what masks it, as
    the greatest hash is no count.
    """
    (kind, was_masked), (later, is_masked) = inner, outer
    if not (was_masked or is_masked) or not (kind.is_direct and later.is_direct):
        return kind.then(later), was_masked or is_masked
    is_counted = (was_masked and kind is Kind.AGGREGATION) or (
        is_masked and later is Kind.AGGREGATION
    )
    return Kind.AGGREGATION if is_counted else Kind.TRANSFORMATION, True


@dataclass(frozen=True, order=True, slots=True)
class Source:
    """A column, or a whole data set, that takes part in a column or in a statement.

    `is_masking` says that its value cannot be recovered from the outcome: of an AGGREGATION as it
    was counted, else as of a hash.
    """

    ref: ColumnRef
    kind: Kind
    is_masking: bool = False

    def then(self, outer: Kind, is_masking: bool = False) -> "Source":
        """The same source as it takes part in what its column takes part in."""
        kind, masks = after((self.kind, self.is_masking), (outer, is_masking))
        return (
            self
            if kind is self.kind and masks == self.is_masking
            else Source(self.ref, kind, masks)
        )

    @property
    def order(self) -> tuple[str, str, Kind, bool]:
        """The order of sources; a data set comes before its columns."""
        return self.ref.table, self.ref.column or "", self.kind, self.is_masking

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, handler: "GetCoreSchemaHandler") -> Any:
        """In JSON a list, as there are many: table, column, kind, and "masking" if it is."""
        from pydantic_core.core_schema import (
            literal_schema,
            no_info_after_validator_function,
            plain_serializer_function_ser_schema,
            tuple_schema,
        )

        parts = [handler(str), handler(str | None), handler(Kind), literal_schema(["masking"])]
        return no_info_after_validator_function(
            lambda said: cls(ColumnRef(*said[:2]), said[2], said[3:] == ("masking",)),
            tuple_schema(parts, variadic_item_index=3),
            serialization=plain_serializer_function_ser_schema(
                lambda one: (
                    [one.ref.table, one.ref.column, one.kind.value] + ["masking"] * one.is_masking
                )
            ),
        )


def _keep_in_order(one: object, sources: str, *texts: str) -> None:
    """Let these fields of a frozen object hold each value once, in order."""
    several = getattr(one, sources)
    if len(several) > 1:
        object.__setattr__(one, sources, tuple(sorted(set(several), key=lambda one: one.order)))
    for name in texts:
        if len(several := getattr(one, name)) > 1:
            object.__setattr__(one, name, tuple(sorted(set(several))))


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnLineage:
    """What one column of a target came from: sources, in order and each once; or a constant; or
    what is unknown.

    `opaque` holds reasons: what the column came from is not, or not only, the sources. `udfs` names
    code that nobody looks into, such as a UDF: what it does with the sources is not known, but they
    are all there are. Never is a column silently without any of them.
    """

    column: str
    sources: tuple[Source, ...] = ()
    opaque: tuple[str, ...] = ()
    udfs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _keep_in_order(self, "sources", "opaque", "udfs")

    @property
    def is_constant(self) -> bool:
        return not self.not_known and not any(source.kind.is_direct for source in self.sources)

    @property
    def not_known(self) -> tuple[str, ...]:
        """All that is not known of it: which other sources it has, and what was done with its
        sources.
        """
        return self.opaque + self.udfs

    def joined(self, other: "ColumnLineage") -> "ColumnLineage":
        """Of two statements that both give the column."""
        return ColumnLineage(
            column=self.column,
            sources=self.sources + other.sources,
            opaque=self.opaque + other.opaque,
            udfs=self.udfs + other.udfs,
        )


def joined(columns: Iterable[ColumnLineage]) -> tuple[ColumnLineage, ...]:
    """Each column once, in the order in which they are met first."""
    found: dict[str, ColumnLineage] = {}
    for one in columns:
        found[one.column] = one.joined(found[one.column]) if one.column in found else one
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class Value:
    """Sources with their kinds, and the reasons why they are not all; neither means a constant.

    `udfs` names code that the value went through and nobody looks into; the sources are its
    arguments. `fields` are those of a struct that the plan itself puts together, in order, so that
    one that is taken out again has its own sources only.
    """

    sources: frozenset[Source] = frozenset()
    opaque: frozenset[str] = frozenset()
    fields: tuple["Value", ...] | None = None
    udfs: frozenset[str] = frozenset()

    @property
    def is_constant(self) -> bool:
        return not (self.sources or self.opaque or self.udfs)

    def then(self, kind: Kind, is_masking: bool = False) -> "Value":
        """This value as it takes part in another one."""
        stepped = [source.then(kind, is_masking) for source in self.sources]
        if self.fields is None and all(
            one is before for one, before in zip(stepped, self.sources, strict=True)
        ):
            return self
        return Value(frozenset(stepped), self.opaque, udfs=self.udfs)

    def because(self, *reasons: str) -> "Value":
        """This value, of which something is unknown for these reasons."""
        return Value(self.sources, self.opaque | frozenset(reasons), udfs=self.udfs)

    def through(self, code: str) -> "Value":
        """What code that nobody looks into makes of this value."""
        return Value(self.then(Kind.TRANSFORMATION).sources, self.opaque, udfs=self.udfs | {code})

    def merged(self, other: "Value") -> "Value":
        """A value that may be either, or is made of both."""
        if self == other:
            return self
        return Value(
            self.sources | other.sources, self.opaque | other.opaque, udfs=self.udfs | other.udfs
        )

    __or__ = merged

    def lineage(self, column: str) -> ColumnLineage:
        return ColumnLineage(
            column=column,
            sources=tuple(self.sources),
            opaque=tuple(self.opaque),
            udfs=tuple(self.udfs),
        )


CONSTANT = Value()


_NOTHING: frozenset[Source] = frozenset()


_NONE: frozenset[str] = frozenset()


def together(values: Iterable[Value]) -> Value:
    """What all of these came from."""
    found = tuple(values)
    if len(found) == 1:
        return found[0]
    return Value(
        _NOTHING.union(*[value.sources for value in found]),
        _NONE.union(*[value.opaque for value in found]),
        udfs=_NONE.union(*[value.udfs for value in found]),
    )


READ = ""  # the target of a statement that only reads


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One write on one target, or a query that only reads; the columns of that are by position, so
    that a name may come twice.

    `columns` are those that it assigns, by the target's names; one that it leaves as it is is not
    among them. `indirect` are sources that decide which rows there are, once for the whole
    statement. `inputs` are all data sets that it reads, the target itself only if it reads that
    beyond what a merge looks up. `replaces` says that no row of the target stays. `unknown` holds
    why something of it is unknown, `udfs` names code that nobody looks into and that says by
    `indirect` which rows there are, or how many.
    """

    target: str
    columns: tuple[ColumnLineage, ...] = ()
    indirect: tuple[Source, ...] = ()
    inputs: tuple[str, ...] = ()
    replaces: bool = False
    unknown: tuple[str, ...] = ()
    udfs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _keep_in_order(self, "indirect", "inputs", "unknown", "udfs")

    @property
    def not_known(self) -> tuple[str, ...]:
        """All that is not known of which rows there are."""
        return self.unknown + self.udfs

    @property
    def sources(self) -> tuple[Source, ...]:
        """All that takes part in anything: in which rows there are, then in each column."""
        return self.indirect + tuple(source for column in self.columns for source in column.sources)

    def joined(self, other: "Statement") -> "Statement":
        """What both say of one target."""
        return Statement(
            target=self.target,
            columns=joined((*self.columns, *other.columns)),
            indirect=self.indirect + other.indirect,
            inputs=self.inputs + other.inputs,
            replaces=self.replaces or other.replaces,
            unknown=self.unknown + other.unknown,
            udfs=self.udfs + other.udfs,
        )

    def added(self, later: "Statement") -> "Statement":
        """Of two statements of one run on one target: they add up, unless the later one replaces
        all.
        """
        return later if later.replaces else self.joined(later)


@dataclass(frozen=True, kw_only=True)
class Producer:
    """Who writes: a job in a namespace, as OpenLineage names them. Ours are the deployment and the
    subscription.
    """

    namespace: str
    job: str


@dataclass(frozen=True, kw_only=True)
class LineageRecord:
    """What a successful run of a producer wrote on one target.

    `at_ms` is when it succeeded, `code` a digest of what was run. A repeated record of a producer,
    target and run changes nothing.
    """

    producer: Producer
    run_id: str
    at_ms: int
    statement: Statement
    consumer: str | None = None
    code: str | None = None
    owners: tuple[str, ...] = ()
    links: dict[str, str] = field(default_factory=dict, hash=False)

    @property
    def target(self) -> str:
        return self.statement.target


def summed(statements: Iterable[Statement]) -> tuple[Statement, ...]:
    """One statement a target, of a run's statements in their order."""
    by_target: dict[str, list[Statement]] = {}
    for one in statements:
        by_target.setdefault(one.target, []).append(one)
    return tuple(reduce(Statement.added, several) for several in by_target.values())


def refs_in(statement: Statement) -> list[ColumnRef]:
    """All data sets and columns of a statement; what it writes comes before what it reads."""
    refs = [ColumnRef(statement.target, one.column) for one in statement.columns]
    return [
        *refs,
        *(source.ref for source in statement.sources),
        *map(ColumnRef, (statement.target, *statement.inputs)),
    ]


def inputs_of(columns: Iterable[ColumnLineage], indirect: Iterable[Source]) -> tuple[str, ...]:
    """The data sets that take part in any way, each once."""
    refs: list[ColumnRef] = [source.ref for source in indirect]
    refs += [source.ref for one in columns for source in one.sources]
    return tuple(sorted({ref.table for ref in refs}))


def respelled(statement: Statement, names: Mapping[ColumnRef, ColumnRef]) -> Statement:
    """A statement with other names of columns; what goes by one name then is one column."""
    columns = [
        ColumnLineage(
            column=names.get(ref := ColumnRef(statement.target, one.column), ref).column
            or one.column,
            sources=_respelled(one.sources, names),
            opaque=one.opaque,
            udfs=one.udfs,
        )
        for one in statement.columns
    ]
    return replace(
        statement, columns=joined(columns), indirect=_respelled(statement.indirect, names)
    )


def _respelled(
    sources: Iterable[Source], names: Mapping[ColumnRef, ColumnRef]
) -> tuple[Source, ...]:
    return tuple(Source(names.get(one.ref, one.ref), one.kind, one.is_masking) for one in sources)


def as_table_names(statement: Statement, columns: Iterable[str]) -> Statement:
    """A statement with its columns by the names of its target's; letter case counts where that has
    the name as it is written.
    """
    exact = set(columns)
    own = {folded(name): name for name in exact}
    names = {
        ColumnRef(statement.target, one.column): ColumnRef(
            statement.target, own[folded(one.column)]
        )
        for one in statement.columns
        if one.column not in exact and folded(one.column) in own
    }
    return respelled(statement, names) if names else statement


def statement_json(statement: Statement) -> dict[str, Any]:
    """A statement as JSON without what is empty; of equal statements it is the same, whatever the
    order of their columns.
    """
    columns = tuple(sorted(statement.columns, key=lambda one: one.column))
    return _adapter().dump_python(
        replace(statement, columns=columns), mode="json", exclude_defaults=True
    )


def statement_from(value: Mapping[str, Any]) -> Statement:
    """The statement of its JSON."""
    return _adapter().validate_python(value)


@cache
def _adapter() -> "TypeAdapter[Statement]":
    from pydantic import TypeAdapter  # for who reads or writes JSON

    return TypeAdapter(Statement)


ACTIVE_MS = 24 * 3_600_000  # a dashboard that was read since then is active
RECIPIENT_MS = 35 * ACTIVE_MS  # a consumer that read since then is notified of changes


class ConsumerKind(StrEnum):
    """What reads."""

    DASHBOARD = "dashboard"
    USER = "user"
    JOB = "job"


@dataclass(frozen=True, order=True, slots=True)
class Consumer:
    """Who reads: a dashboard or a person by name within what knows it, or a job within its
    namespace.
    """

    kind: ConsumerKind
    namespace: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Read:
    """A consumer read columns, or with None as column a data set of which the columns are unknown;
    `at_ms` is when it succeeded.
    """

    consumer: Consumer
    refs: tuple[ColumnRef, ...]
    at_ms: int
    owners: tuple[str, ...] = ()
    link: str = ""


EVERY = ".*"  # at the end of an alias: all names below
_SESSION = "spark_catalog."  # what Spark calls the catalog that has no name
_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "wasbs"}


@dataclass(frozen=True)
class Names:
    """The names of tables, where they lie, and what others call them.

    `aliases` are from what others say to a table of the lake: a table for a table, or `hive.*` to
    `*` or to `bronze.*` for all below. Names are compared without regard to letter case, as engines
    do.
    """

    tables: tuple[str, ...] = ()
    locations: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for said, meant in self.aliases.items():
            if said.endswith(EVERY) != (meant == "*" or meant.endswith(EVERY)):
                raise InvalidValueError(
                    "aliases",
                    said,
                    f"means {meant!r}; end both with .*, or neither, such as 'hive.*': '*'",
                )

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
        """The table of the lake at a location, or None."""
        return self._locations.get(normalised(location))

    def holding(self, location: str) -> str | None:
        """The table of the lake at a location or, the nearest first, in a folder that this is
        below, or None.
        """
        scheme, mark, path = normalised(location).partition("://")
        parts = path.split("/")
        above = (scheme + mark + "/".join(parts[:end]) for end in range(len(parts), 0, -1))
        return next((self._locations[one] for one in above if one in self._locations), None)

    def has_below(self, location: str) -> bool:
        """Whether tables of the lake lie in folders below."""
        return any(one.startswith(f"{normalised(location)}/") for one in self._locations)

    def of_dataset(self, namespace: str, name: str) -> str | None:
        """The table of the lake that OpenLineage calls so: by location, by alias with its namespace
        or without, by name.
        """
        location = (
            name
            if namespace.rstrip(":/").casefold() == "file"
            else f"{namespace.rstrip('/')}/{name.lstrip('/')}"
        )
        return self.at(location) or self.of(f"{namespace}/{name}") or self.of(name)

    @cached_property
    def _tables(self) -> dict[str, str]:
        return {name.casefold(): name for name in self.tables}

    @cached_property
    def _aliases(self) -> dict[str, str]:
        return {
            said.casefold(): meant
            for said, meant in self.aliases.items()
            if not said.endswith(EVERY)
        }

    @cached_property
    def _prefixes(self) -> list[tuple[str, str]]:
        """The longest first."""
        several = [
            (said[:-1].casefold(), meant[:-1].casefold())
            for said, meant in self.aliases.items()
            if said.endswith(EVERY)
        ]
        return sorted(several, key=lambda one: -len(one[0]))

    @cached_property
    def _locations(self) -> dict[str, str]:
        return {normalised(location): table for table, location in self.locations.items()}


def external(namespace: str, name: str) -> str:
    """The name of a data set outside of the lake."""
    return f"{namespace.rstrip('/')}/{name.lstrip('/')}" if namespace else name


def outside(path: str) -> str:
    """The name of an external data set at a path."""
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


ROOT = "$"
PAYLOAD = "payload"  # of a table of events: an event as it arrived


def pointer(*fields: str) -> str:
    """The path of a field, as it stands in names of columns."""
    return ".".join((ROOT, *fields))
