"""What one successful run tells of its writes: a statement for each, and a record of all of them on one target."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

from lakechime_dagster.lineage.columns import ColumnLineage, ColumnRef, Source, joined

READ = ""  # the target of a statement that only reads


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One write on one target, or a query that only reads; the columns of that are by position, so that a name may come twice.

    `columns` are those that it assigns, by the target's names; one that it leaves as it is is not among them. `indirect` are
    sources that decide which rows there are, told once for the whole statement. `inputs` are all data sets that it reads, the
    target itself only if it reads that beyond what a merge looks up. `replaces` says that no row of the target stays.
    `unknown` holds why something of it could not be told, `foreign` names code that nobody looks into and that says by `indirect`
    which rows there are, or how many.
    """

    target: str
    columns: tuple[ColumnLineage, ...] = ()
    indirect: tuple[Source, ...] = ()
    inputs: tuple[str, ...] = ()
    replaces: bool = False
    unknown: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "indirect", tuple(sorted(set(self.indirect), key=lambda one: one.order)))
        for name in ("inputs", "unknown", "foreign"):
            object.__setattr__(self, name, tuple(sorted(set(getattr(self, name)))))

    @property
    def not_known(self) -> tuple[str, ...]:
        """All that is not known of which rows there are."""
        return self.unknown + self.foreign

    @property
    def sources(self) -> tuple[Source, ...]:
        """All that takes part in anything: in which rows there are, then in each column."""
        return self.indirect + tuple(source for column in self.columns for source in column.sources)

    def added(self, later: "Statement") -> "Statement":
        """Of two statements of one run on one target: they add up, unless the later one replaces all."""
        if later.replaces:
            return later
        return Statement(
            target=self.target,
            columns=joined((*self.columns, *later.columns)),
            indirect=self.indirect + later.indirect,
            inputs=self.inputs + later.inputs,
            replaces=self.replaces,
            unknown=self.unknown + later.unknown,
            foreign=self.foreign + later.foreign,
        )


@dataclass(frozen=True, kw_only=True)
class Producer:
    """Who writes: a job in a namespace, as OpenLineage names them. Ours are the deployment and the flow."""

    namespace: str
    job: str


@dataclass(frozen=True, kw_only=True)
class LineageRecord:
    """What a successful run of a producer wrote on one target.

    `at_ms` is when it succeeded. `version` is the snapshot that the target had then, `code` a digest of what was run. A record
    of the same producer, target and run says the same: what comes again changes nothing.
    """

    producer: Producer
    run_id: str
    at_ms: int
    statement: Statement
    lane: str | None = None
    step: int | None = None
    version: str | None = None
    code: str | None = None
    owners: tuple[str, ...] = ()
    links: dict[str, str] = field(default_factory=dict, hash=False)

    @property
    def target(self) -> str:
        return self.statement.target

    def with_statement(self, statement: Statement) -> "LineageRecord":
        """The same of another statement."""
        return replace(self, statement=statement)


def summed(statements: Iterable[Statement]) -> tuple[Statement, ...]:
    """One statement a target, of a run's statements in their order."""
    by_target: dict[str, list[Statement]] = {}
    for one in statements:
        by_target.setdefault(one.target, []).append(one)
    return tuple(reduce(Statement.added, several) for several in by_target.values())


def inputs_of(columns: Iterable[ColumnLineage], indirect: Iterable[Source]) -> tuple[str, ...]:
    """The data sets that take part in any way, each once."""
    refs: list[ColumnRef] = [source.ref for source in indirect]
    refs += [source.ref for one in columns for source in one.sources]
    return tuple(sorted({ref.table for ref in refs}))


def respelled(statement: Statement, names: Mapping[ColumnRef, ColumnRef]) -> Statement:
    """A statement with other names of columns; what goes by one name then is one column."""
    columns = [
        ColumnLineage(
            column=names.get(ref := ColumnRef(statement.target, one.column), ref).column or one.column,
            sources=_respelled(one.sources, names), opaque=one.opaque, foreign=one.foreign,
        )
        for one in statement.columns
    ]  # fmt: skip
    return replace(statement, columns=joined(columns), indirect=_respelled(statement.indirect, names))


def _respelled(sources: Iterable[Source], names: Mapping[ColumnRef, ColumnRef]) -> tuple[Source, ...]:
    return tuple(Source(names.get(one.ref, one.ref), one.kind, one.is_masking) for one in sources)


def as_table_names(statement: Statement, columns: Iterable[str]) -> Statement:
    """A statement with its columns by the names of its target's; letter case counts where that has the name as it is written."""
    exact = set(columns)
    own = {name.casefold(): name for name in exact}
    names = {
        ColumnRef(statement.target, one.column): ColumnRef(statement.target, own[one.column.casefold()])
        for one in statement.columns
        if one.column not in exact and one.column.casefold() in own
    }
    return respelled(statement, names) if names else statement
