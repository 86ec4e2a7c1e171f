"""Data sets and columns as nodes of a graph: what is known of each, and their names."""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntFlag

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.errors import NotFoundError, shown
from lakechime_dagster.lineage.columns import ColumnRef, Kind, Producer, Statement
from lakechime_dagster.tables.names import folded

DAY_MS = 86_400_000


@dataclass(frozen=True, kw_only=True)
class TableFacts:
    """`last_ms` is when a run last recorded a write of the data set, None where none ever did;
    `jobs` are namespace/job of who do.

    `is_declared` says that the lake of this code location declares it, `is_source` that it is
    written externally.
    """

    owners: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict, hash=False)
    last_ms: int | None = None
    is_declared: bool = False
    is_source: bool = False

    def is_stale(self, now_ms: int, days: int) -> bool:
        """Whether no run recorded a write of it for so many days, though one did."""
        return self.last_ms is not None and now_ms - self.last_ms > days * DAY_MS

    def joined(self, other: "TableFacts") -> "TableFacts":
        """What both know of one data set."""
        return TableFacts(
            owners=tuple(dict.fromkeys(self.owners + other.owners)),
            jobs=tuple(dict.fromkeys(self.jobs + other.jobs)),
            links={**other.links, **self.links},
            last_ms=max(
                (one for one in (self.last_ms, other.last_ms) if one is not None), default=None
            ),
            is_declared=self.is_declared or other.is_declared,
            is_source=self.is_source or other.is_source,
        )


class Part(IntFlag):
    """DIRECT: values derive from it. INDIRECT: values of it decide. UNSURE: either may be, since
    something is unknown.

    One that is read and has none of them decides only by how many rows it has. DECLARED is one that
    is declared, and that no run recorded.
    """

    DIRECT = 1
    INDIRECT = 2
    UNSURE = 4
    DECLARED = 8


def is_unsure(statement: Statement) -> bool:
    """Whether something of a statement is unknown."""
    return bool(statement.unknown) or any(column.opaque for column in statement.columns)


def parts_of(statement: Statement) -> dict[str, Part]:
    """The data sets that a statement reads, whether it names them as inputs or by their columns
    alone, by name.
    """
    unsure = Part.UNSURE if is_unsure(statement) else Part(0)
    direct, indirect = set[str](), set[str]()
    for source in statement.sources:
        (direct if source.kind.is_direct else indirect).add(source.ref.table)
    return {
        name: unsure
        | (Part.DIRECT if name in direct else Part(0))
        | (Part.INDIRECT if name in indirect else Part(0))
        for name in sorted({*statement.inputs, *direct, *indirect})
    }


UNKNOWN = 0
"""The code of an edge from a data set to what may derive from any of its columns."""


_KINDS = (
    Kind.IDENTITY,
    Kind.TRANSFORMATION,
    Kind.AGGREGATION,
    Kind.JOIN,
    Kind.GROUP_BY,
    Kind.FILTER,
    Kind.SORT,
    Kind.WINDOW,
    Kind.CONDITIONAL,
    Kind.DRIVER,
)


_CODES = {kind: code for code, kind in enumerate(_KINDS, start=1)}


def code_of(kind: Kind, is_masking: bool = False) -> int:
    """The number by which stores and graphs keep a kind; the one of a masking source is negative.
    Never renumbered.
    """
    code = _CODES[kind]
    return -code if is_masking else code


def kind_of(code: int) -> Kind:
    """The kind that has a number."""
    return _KINDS[abs(code) - 1]


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The statement of the newest run of a producer, at `last_ms`, with its owners and links;
    `code` is the digest of its code.
    """

    producer: Producer
    statement: Statement
    last_ms: int
    owners: tuple[str, ...] = ()
    code: str | None = None
    links: Mapping[str, str] = field(default_factory=dict, hash=False)


NEAR = 3  # names that an error proposes


def meant(
    text: str, tables: Iterable[str], columns_of: Callable[[str], Iterable[str]]
) -> ColumnRef:
    """A data set by its name, or a column by that of its data set, a dot and its own; letter case
    counts where names differ in it alone.

    Raises:
        NotFoundError: naming what is nearest.
    """
    known = set(tables)
    if text in known:
        return ColumnRef(text)
    dots = [at for at, character in enumerate(text) if character == "."]
    for at in reversed(dots):  # names of columns may have dots too; the longest data set is meant
        if text[:at] in known:
            return _column(text[:at], text[at + 1 :], list(columns_of(text[:at])))
    alike = _alike(text, known)
    if alike is not None:
        return ColumnRef(alike)
    for at in reversed(dots):
        if (alike := _alike(text[:at], known)) is not None:
            return _column(alike, text[at + 1 :], list(columns_of(alike)))
    if not known:
        raise NotFoundError(
            f"no data set {shown(text)}: no run has recorded lineage yet, and the lake declares no "
            f"table"
        )
    near = _near(text, known) or _near(text.rpartition(".")[0], known)
    remedy = (
        f"did you mean {' or '.join(near)}?"
        if near
        else "`lakechime lineage export` shows those that are known"
    )
    raise NotFoundError(f"lineage knows no data set {shown(text)}; {remedy}")


def _column(table: str, column: str, columns: list[str]) -> ColumnRef:
    if not columns:
        return ColumnRef(table, column)
    found = column if column in columns else _alike(column, columns)
    if found is not None:
        return ColumnRef(table, found)
    near = _near(column, columns)
    remedy = (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"it has {', '.join(sorted(columns)[:20])}"
    )
    raise NotFoundError(f"{table} has no column {shown(column)} that is known; {remedy}")


def _alike(text: str, names: Iterable[str]) -> str | None:
    """The only name that is the same but for its letter case."""
    found = {name for name in names if folded(name) == folded(text)}
    return found.pop() if len(found) == 1 else None


def _near(text: str, names: Iterable[str]) -> list[str]:
    by_lower = {name.lower(): name for name in names}
    return [by_lower[near] for near in difflib.get_close_matches(text.lower(), by_lower, n=NEAR)]


class GapKind(StrEnum):
    """How much of a data set is not known; the sources of one that others write, without records,
    end there.
    """

    WHOLE = "not known"
    PART = "not known in part"
    EXTERNAL = "written externally"


@dataclass(frozen=True)
class Gap:
    """That more may lead to a data set than is known, and why."""

    kind: GapKind
    reasons: tuple[str, ...]


def gap_of(
    table: str, recorded: Sequence[Statement], facts: TableFacts, planned: Statement | None
) -> Gap | None:
    """The gap of a data set, by what holds of its writes, or else by what is planned; None where
    all is known.
    """
    reasons = tuple(dict.fromkeys(gaps(ColumnRef(table), recorded, facts, planned)))
    if not reasons:
        return None
    known = recorded or ([] if planned is None else [planned])
    if not known:
        return Gap(GapKind.EXTERNAL if facts.is_source else GapKind.WHOLE, reasons)
    is_some_known = any(not column.not_known for statement in known for column in statement.columns)
    return Gap(GapKind.PART if is_some_known else GapKind.WHOLE, reasons)


def gaps(
    ref: ColumnRef, recorded: Sequence[Statement], facts: TableFacts, planned: Statement | None
) -> Iterator[str]:
    """Why more may lead to a data set or a column."""
    if not recorded and planned is not None:
        yield f"no run that wrote {ref.table} has recorded lineage yet: only what is planned is known"
        recorded = (planned,)
    if not recorded:
        if facts.is_source:
            yield f"{ref.table} is written externally, and its sources are not recorded"
        elif facts.is_declared:
            yield (
                f"no run that wrote {ref.table} has recorded lineage yet: only its declared reads "
                f"are known"
            )
        else:
            yield f"no run that wrote {ref.table} has recorded lineage"
        return
    for statement in recorded:
        yield from (f"{ref.table}: {reason}" for reason in statement.not_known)
        for column in statement.columns:
            if ref.column is None or folded(ref.column) == folded(column.column):
                yield from (f"{ref.table}.{column.column}: {reason}" for reason in column.not_known)
    assigned = {folded(column.column) for one in recorded for column in one.columns}
    if ref.column is not None and folded(ref.column) not in assigned:
        yield f"no recorded run has assigned {ref}"
