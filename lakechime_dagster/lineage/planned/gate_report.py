"""Findings of a check as text for a pull request: by owner, what, why, and what to do about rows that older code left."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from lakechime_dagster.dce.text import printable
from lakechime_dagster.lineage.planned.findings import ORDER, Class, Finding
from lakechime_dagster.lineage.planned.gate_readers import Readers
from lakechime_dagster.lineage.reads import Read
from lakechime_dagster.triggers.grid import from_milliseconds

NOBODY = "nobody"
RERUN = (Class.ROWS, Class.VALUES)


def markdown(
    findings: Sequence[Finding], wakes: Mapping[str, str], remedies: Mapping[str, str] | None = None, readers: Readers | None = None,
    not_known: str = "",
) -> str:  # fmt: skip
    """The findings by owner.

    Args:
        findings: In the order in which they are told.
        wakes: By table what launches its runs.
        remedies: By table what makes its rows anew, in words, where that is not a backfill.
        readers: Who reads what a finding is about, outside the lake.
        not_known: Why it is not known who else reads.
    """
    open_ = [one for one in findings if not one.accepted]
    if not findings:
        return "No table, row or value changes.\n"
    lines = ["| what | how many |", "|---|---|"]
    lines += [f"| {kind} | {number} |" for kind in ORDER if (number := sum(one.kind is kind for one in open_))]
    by_owner = sorted(open_, key=lambda one: (one.owner or "~", ORDER.index(one.kind)))
    for owner, several in groupby(by_owner, key=lambda one: one.owner or NOBODY):
        lines += ["", f"### {_safe(owner)}", "", *_of_owner(list(several), wakes, readers or {})]
    if not_known:
        lines += ["", f"Not known: who else reads it, since {_safe(not_known)}."]
    lines += _accepted([one for one in findings if one.accepted])
    lines += _left_behind(findings, remedies or {})
    return "\n".join(lines) + "\n"


def _of_owner(findings: Iterable[Finding], wakes: Mapping[str, str], readers: Readers) -> list[str]:
    lines = ["| | table | column | what | by way of | launches its runs | is read by |", "|---|---|---|---|---|---|---|"]
    for one in findings:
        way = " → ".join(_safe(str(ref)) for ref in one.because)
        cells = [str(one.kind), _safe(one.table), _safe(one.column or ""), _safe(one.what), way, _safe(wakes.get(one.table, ""))]
        cells.append(_read_by(readers.get(one.key, ())))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _read_by(several: Sequence[Read], most: int = 5) -> str:
    """Dashboards and others with their owners and the day when they read last."""
    told = []
    for one in several[:most]:
        owners = f" of {_safe(', '.join(one.owners))}" if one.owners else ""
        told.append(f"{one.consumer.kind} {_safe(one.consumer.name)}{owners} ({from_milliseconds(one.at_ms):%Y-%m-%d})")
    more = [f"{len(several) - most} more"] if len(several) > most else []
    return "; ".join([*told, *more])


def _accepted(findings: Sequence[Finding]) -> list[str]:
    lines = [f"- {_safe(one.key)} — {_safe(one.accepted)}" for one in findings]
    return ["", "### accepted", "", *lines] if lines else []


def _left_behind(findings: Sequence[Finding], remedies: Mapping[str, str]) -> list[str]:
    """Tables whose rows so far were made by the code as it was, and how to make them anew."""
    tables = dict.fromkeys(one.table for one in findings if one.kind in RERUN and not one.because)
    if not tables:
        return []
    lines = [f"- {_safe(name)}: {printable(remedies[name])}" if name in remedies else _command(findings, name) for name in tables]
    return ["", "### rows that older code left", "", "They stay until they are made anew:", "", *lines]


def _command(findings: Iterable[Finding], table: str) -> str:
    return f"- {_safe(table)}: `{_in_code(backfill_command(findings, table))}`"


def backfill_command(findings: Iterable[Finding], table: str) -> str:
    """The command that plans what must be made anew for the changes of a table."""
    columns = [f"{table}.{one.column}" for one in findings if one.table == table and one.column and one.kind in RERUN and not one.because]
    is_whole = any(one.table == table and one.column is None and one.kind in RERUN for one in findings)
    wanted = [table] if is_whole or not columns else columns
    return f"lakechime backfill plan --columns {','.join(dict.fromkeys(wanted))}"


def _safe(text: str) -> str:
    """Text that makes no cell, line, code or tag of its own, nor turns what stands around it."""
    return _in_code(text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;"))


def _in_code(text: str) -> str:
    """Text that ends no code and makes no line; within code nothing else has a meaning."""
    return printable(" ".join(text.replace("`", "'").split()))
