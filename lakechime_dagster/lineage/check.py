"""Checks a change of the code against the readers of its tables."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.partitions import printable
from lakechime_dagster.lineage.columns import ColumnRef, Read
from lakechime_dagster.lineage.manifest import Manifest, PlannedColumn, PlannedTable, fits, said
from lakechime_dagster.triggers.schedule import from_milliseconds

if TYPE_CHECKING:
    from lakechime_dagster.lineage.answers import AffectedConsumer, PathEdge

GONE = "is gone"
NOT_KNOWN = "not known"  # the kind of an edge of which it is unknown whether the column is read
NO_TABLE = "is no table of the lake any more"
DIGITS = 16


class Class(StrEnum):
    """What a finding is about, the worst first.

    BREAKS: does not resolve any more, or a column that is read is gone or has another type. ROWS:
    which rows there are, or how they are kept. VALUES: what a column holds. UNSURE: it may be any
    of these, but what is computed is unknown. INFORMS: no reader need do anything.
    """

    BREAKS = "breaks"
    ROWS = "rows change"
    VALUES = "values change"
    UNSURE = "unsure"
    INFORMS = "informs"


ORDER = tuple(Class)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one change does to one table. `because` is the chain of columns or tables by which it is
    reached, first the change itself.

    `marks` are digests of what the changes that it comes from made, where no words say it.
    """

    kind: Class
    table: str
    column: str | None
    what: str
    because: tuple[ColumnRef, ...] = ()
    marks: tuple[str, ...] = ()
    owner: str = ""
    accepted: str = ""

    @property
    def key(self) -> str:
        """By which it is accepted: it is another one when anything of it is other, also what no
        words say.
        """
        marks = f" [{', '.join(self.marks)}]" if self.marks else ""
        return f"{self.kind}: {self.ref}: {self.what}{marks}"

    @property
    def ref(self) -> ColumnRef:
        return ColumnRef(self.table, self.column)

    @property
    def takes_away(self) -> bool:
        """Whether a column or a table is no more."""
        return self.what in (GONE, NO_TABLE)


def sorted_findings(several: Iterable[Finding]) -> tuple[Finding, ...]:
    """The worst first, those of a table together."""
    return tuple(
        sorted(
            several, key=lambda one: (ORDER.index(one.kind), one.table, one.column or "", one.what)
        )
    )


def mark_of(value: object) -> str:
    """A digest of a value that is JSON."""
    return hashlib.sha256(
        json.dumps(value, sort_keys=True).encode(errors="surrogatepass")
    ).hexdigest()[:DIGITS]


def affected(own: Sequence[Finding], before: Manifest, after: Manifest) -> Iterator[Finding]:
    """What the changes of tables do to those that read them, along columns; of each the nearest
    path, and a sure one before others.
    """
    from lakechime_dagster.lineage.answers import Paths, nodes_of  # numpy, for who compares
    from lakechime_dagster.lineage.network import Certainty, network_of, reach

    tables = {
        **before.tables,
        **{
            name: one
            for name, one in after.tables.items()
            if one.columns or name not in before.tables
        },
    }
    network = network_of(tables.values(), columns=[change.ref for change in own])
    for change in own:
        if change.kind is Class.INFORMS and change.what != GONE:
            continue
        start, reached = nodes_of(network, [change.ref])[:1], set[int]()
        for certainty in (Certainty.INDIRECT, Certainty.UNSURE):
            found = reach(network, start, certainty)
            paths = Paths(network, found, certainty)
            for node in found.nodes.tolist():
                if node not in reached and (path := paths.of(node)):
                    target = path[-1].target
                    is_perhaps = target.column and NOT_KNOWN in path[-1].kinds
                    if not (is_perhaps and tables[target.table].unknown):
                        yield _affected(change, path, is_sure=certainty is Certainty.INDIRECT)
                reached.add(node)


def _affected(change: Finding, path: "Sequence[PathEdge]", *, is_sure: bool) -> Finding:
    last, kind = path[-1], Class.VALUES if change.kind is Class.BREAKS else change.kind
    is_named = NOT_KNOWN not in last.kinds
    what = f"reads {last.source}" if is_named else f"may read {last.source}"
    if last.target.column is None and is_named and kind is not Class.UNSURE:
        kind = Class.ROWS
    if len(path) > 1:
        what = f"{what}, which comes from {change.ref}"
        kind = Class.UNSURE if change.what == GONE else kind
    elif change.what == GONE:
        kind, what = Class.BREAKS, f"{what}, which {GONE}"
    because = (change.ref, *(edge.target for edge in path))
    return Finding(
        kind=kind if is_sure else Class.UNSURE,
        table=last.target.table,
        column=last.target.column,
        what=what,
        because=because,
        marks=change.marks,
    )


def compare(before: Manifest, after: Manifest) -> tuple[Finding, ...]:
    """All findings, the worst first, those of a table together."""
    own = [
        finding
        for name in after.tables
        for finding in _own_changes(before.tables.get(name), after.tables[name])
    ]
    own += [_removed(before, after, name) for name in before.tables if name not in after.tables]
    tables = {**before.tables, **after.tables}
    others = (one for one in affected(own, before, after) if one.table in after.tables)
    found = _once([*own, *others])
    return sorted_findings(replace(one, owner=tables[one.table].owner) for one in found)


def _once(several: Iterable[Finding]) -> Iterable[Finding]:
    """Each once, with the marks of all changes by which it is found."""
    found: dict[str, Finding] = {}
    for one in several:
        plain = replace(one, marks=()).key
        known = found.setdefault(plain, one)
        found[plain] = replace(known, marks=tuple(sorted({*known.marks, *one.marks})))
    return found.values()


def _own_changes(before: PlannedTable | None, after: PlannedTable) -> Iterator[Finding]:
    """What differs in a table itself."""
    if before is None:
        yield Finding(kind=Class.INFORMS, table=after.target, column=None, what="is new")
        return
    if not after.columns and before.columns:
        yield from _lost(before, after)
        return
    yield from _columns_changed(before, after)
    if not after.is_computed:
        return
    if before.laid_out != after.laid_out:
        what, marks = _laid_out(before.laid_out, after.laid_out), (mark_of(dict(after.laid_out)),)
        yield Finding(kind=Class.ROWS, table=after.target, column=None, what=what, marks=marks)
    if before.rows != after.rows and before.rows and after.rows:
        yield Finding(
            kind=Class.ROWS,
            table=after.target,
            column=None,
            what="other rows are chosen, joined or grouped",
            marks=(after.rows,),
        )
    if before.code != after.code:
        yield from _unknown(before, after)


def _unknown(before: PlannedTable, after: PlannedTable) -> Iterator[Finding]:
    """What of a table whose code changed is not known, now or before."""
    whole = [None] if after.not_known or before.not_known else []
    for column in (*whole, *(column.column for column in after.columns if column.not_known)):
        what = "its code changed, and what it computes is unknown"
        yield Finding(
            kind=Class.UNSURE,
            table=after.target,
            column=column,
            what=what,
            marks=(after.code,) if after.code else (),
        )


def _lost(before: PlannedTable, after: PlannedTable) -> Iterator[Finding]:
    """A table whose columns are not known any more: it breaks, unless nobody knew before or it
    waits for another that does.
    """
    why = "; ".join(after.unknown)
    if after.is_computed and not why.startswith("not known until"):
        yield Finding(
            kind=Class.BREAKS,
            table=after.target,
            column=None,
            what=f"does not resolve: {why}",
            marks=(mark_of(why),),
        )
    elif after.is_computed and before.columns:
        yield Finding(
            kind=Class.UNSURE, table=after.target, column=None, what=why, marks=(mark_of(why),)
        )


def _columns_changed(before: PlannedTable, after: PlannedTable) -> Iterator[Finding]:
    for column in before.columns:
        now = after.by_name.get(column.column)
        if now is None:
            yield Finding(kind=Class.INFORMS, table=after.target, column=column.column, what=GONE)
            continue
        is_fitting = fits(column.type, now.type)
        what = f"is {said(now.type)}, was {said(column.type)}"
        if not is_fitting:
            yield Finding(
                kind=Class.BREAKS,
                table=after.target,
                column=column.column,
                what=what,
                marks=(mark_of([now.type, now.digest]),),
            )
        elif said(now.type) != said(column.type):
            yield Finding(kind=Class.INFORMS, table=after.target, column=column.column, what=what)
        if is_fitting and now.digest != column.digest and column.digest and not now.not_known:
            yield Finding(
                kind=Class.VALUES,
                table=after.target,
                column=column.column,
                what="is computed otherwise",
                marks=(now.digest,),
            )
        elif (
            is_fitting
            and (now.nullable, now.type) != (column.nullable, column.type)
            and said(now.type) == said(column.type)
        ):
            yield Finding(
                kind=Class.INFORMS,
                table=after.target,
                column=column.column,
                what=_nullability(column, now),
            )
    for column in after.columns:
        if column.column not in before.by_name:
            yield Finding(
                kind=Class.INFORMS,
                table=after.target,
                column=column.column,
                what=f"is new, {said(column.type)}",
            )
    kept = [column.column for column in after.columns if column.column in before.by_name]
    if kept != [column.column for column in before.columns if column.column in after.by_name]:
        yield Finding(
            kind=Class.INFORMS,
            table=after.target,
            column=None,
            what="has its columns in another order",
        )


def _nullability(before: PlannedColumn, after: PlannedColumn) -> str:
    if before.nullable == after.nullable:
        return "has within what may be null, or never is, which was not so"
    return "may be null, which was not so" if after.nullable else "is never null, which was not so"


def _removed(before: Manifest, after: Manifest, name: str) -> Finding:
    kept = before.tables.keys() & after.tables.keys()
    is_read = any(name in before.tables[reader].inputs for reader in kept)
    return Finding(
        kind=Class.BREAKS if is_read else Class.INFORMS, table=name, column=None, what=NO_TABLE
    )


def _laid_out(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    return "; ".join(
        f"{name}: {after.get(name, 'nothing')}, was {before.get(name, 'nothing')}"
        for name in changed
    )


Readers = Mapping[str, Sequence["AffectedConsumer"]]  # by the key of a finding


def raised(
    findings: Iterable[Finding], reads: Sequence[Read], since_ms: int
) -> tuple[Finding, ...]:
    """The findings, of which one that a column or a table is gone is no mere information if
    somebody read it since a time.

    It breaks whoever reads the column, and perhaps those of whom the columns are unknown.
    """
    recent = [one for one in reads if one.at_ms >= since_ms]
    return sorted_findings(replace(one, kind=_raised(one, recent)) for one in findings)


def _raised(finding: Finding, reads: Sequence[Read]) -> Class:
    from lakechime_dagster.lineage.network import Certainty  # numpy, for who compares

    is_raised = finding.takes_away and finding.kind is Class.INFORMS
    mine = _readers(finding, reads) if is_raised else ()
    if not mine:
        return finding.kind
    is_sure = any(one.certainty is not Certainty.UNSURE for one in mine)
    return Class.BREAKS if is_sure else Class.UNSURE


def readers_of(findings: Iterable[Finding], reads: Sequence[Read]) -> Readers:
    """The consumers that a finding affects, who read last first.

    A finding about rows or a whole table affects all who read it; one about a column those who read
    that, and those of whom the columns are unknown. What only informs affects nobody.
    """
    found = {
        one.key: _readers(one, reads)
        for one in findings
        if one.takes_away or one.kind is not Class.INFORMS
    }
    return {key: several for key, several in found.items() if several}


def _readers(finding: Finding, reads: Sequence[Read]) -> "Sequence[AffectedConsumer]":
    from lakechime_dagster.lineage.answers import ReachedTables, affected_consumers

    found = affected_consumers([finding.ref], ReachedTables(tables=()), reads)
    return sorted(found, key=lambda one: (-one.last_ms, one.consumer))


NOBODY = "nobody"
RERUN = (Class.ROWS, Class.VALUES)


def markdown(
    findings: Sequence[Finding],
    wakes: Mapping[str, str],
    remedies: Mapping[str, str] | None = None,
    readers: Readers | None = None,
    not_known: str = "",
) -> str:
    """The findings by owner.

    Args:
        findings: In the order in which they are shown.
        wakes: By table what launches its runs.
        remedies: By table what rewrites its rows, in words, where that is not a backfill.
        readers: Who reads what a finding is about, outside the lake.
        not_known: Why it is not known who else reads.
    """
    open_ = [one for one in findings if not one.accepted]
    if not findings:
        return "No table, row or value changes.\n"
    lines = ["| what | how many |", "|---|---|"]
    lines += [
        f"| {kind} | {number} |"
        for kind in ORDER
        if (number := sum(one.kind is kind for one in open_))
    ]
    by_owner = sorted(open_, key=lambda one: (one.owner or "~", ORDER.index(one.kind)))
    for owner, several in groupby(by_owner, key=lambda one: one.owner or NOBODY):
        lines += ["", f"### {_safe(owner)}", "", *_of_owner(list(several), wakes, readers or {})]
    if not_known:
        lines += ["", f"Unknown: who else reads it: {_safe(not_known)}."]
    lines += _accepted([one for one in findings if one.accepted])
    lines += _left_behind(findings, remedies or {})
    return "\n".join(lines) + "\n"


def _of_owner(findings: Iterable[Finding], wakes: Mapping[str, str], readers: Readers) -> list[str]:
    lines = [
        "| | table | column | what | by way of | launches its runs | is read by |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in findings:
        way = " → ".join(_safe(str(ref)) for ref in one.because)
        cells = [
            str(one.kind),
            _safe(one.table),
            _safe(one.column or ""),
            _safe(one.what),
            way,
            _safe(wakes.get(one.table, "")),
        ]
        cells.append(_read_by(readers.get(one.key, ())))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _read_by(several: "Sequence[AffectedConsumer]", most: int = 5) -> str:
    """Dashboards and others with their owners and the day when they read last."""
    shown = []
    for one in several[:most]:
        owners = f" of {_safe(', '.join(one.owners))}" if one.owners else ""
        shown.append(
            f"{one.consumer.kind} {_safe(one.consumer.name)}{owners} "
            f"({from_milliseconds(one.last_ms):%Y-%m-%d})"
        )
    more = [f"{len(several) - most} more"] if len(several) > most else []
    return "; ".join([*shown, *more])


def _accepted(findings: Sequence[Finding]) -> list[str]:
    lines = [f"- {_safe(one.key)} — {_safe(one.accepted)}" for one in findings]
    return ["", "### accepted", "", *lines] if lines else []


def _left_behind(findings: Sequence[Finding], remedies: Mapping[str, str]) -> list[str]:
    """Tables whose rows so far were made by the code as it was, and how to rewrite them."""
    tables = dict.fromkeys(one.table for one in findings if one.kind in RERUN and not one.because)
    if not tables:
        return []
    lines = [
        f"- {_safe(name)}: {printable(remedies[name])}"
        if name in remedies
        else _command(findings, name)
        for name in tables
    ]
    return [
        "",
        "### rows that older code left",
        "",
        "They stay until they are rewritten:",
        "",
        *lines,
    ]


def _command(findings: Iterable[Finding], table: str) -> str:
    return f"- {_safe(table)}: `{_in_code(backfill_command(findings, table))}`"


def backfill_command(findings: Iterable[Finding], table: str) -> str:
    """The command that plans what must be recomputed for the changes of a table."""
    columns = [
        f"{table}.{one.column}"
        for one in findings
        if one.table == table and one.column and one.kind in RERUN and not one.because
    ]
    is_whole = any(
        one.table == table and one.column is None and one.kind in RERUN for one in findings
    )
    wanted = [table] if is_whole or not columns else columns
    return f"lakechime backfill run --dry-run --columns {','.join(dict.fromkeys(wanted))}"


def _safe(text: str) -> str:
    """Text that makes no cell, line, code or tag of its own, nor turns what stands around it."""
    return _in_code(text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;"))


def _in_code(text: str) -> str:
    """Text that ends no code and makes no line; within code nothing else has a meaning."""
    return printable(" ".join(text.replace("`", "'").split()))


Accepted = Mapping[str, str]  # why, by the key of a finding


def with_accepted(findings: Iterable[Finding], accepted: Accepted) -> tuple[Finding, ...]:
    """The findings in their order, those that are accepted with the reason."""
    return tuple(replace(one, accepted=accepted.get(one.key, "")) for one in findings)
