"""Findings of the gate as text for a pull request: by owner, what, why, and what to do about rows that older code left."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from lakechime_dagster.lineage.planned.gate import ORDER, Class, Finding

NOBODY = "nobody"
RERUN = (Class.ROWS, Class.VALUES)


def markdown(findings: Sequence[Finding], wakes: Mapping[str, str], sources: Mapping[str, Sequence[str]] | None = None) -> str:
    """The findings by owner.

    Args:
        findings: In the order in which they are told.
        wakes: By table what launches its runs.
        sources: By table those computed tables from which a backfill of it begins; those alone are named.
    """
    open_ = [one for one in findings if not one.accepted]
    if not findings:
        return "No table, row or value changes.\n"
    lines = ["| what | how many |", "|---|---|"]
    lines += [f"| {kind} | {number} |" for kind in ORDER if (number := sum(one.kind is kind for one in open_))]
    by_owner = sorted(open_, key=lambda one: (one.owner or "~", ORDER.index(one.kind)))
    for owner, several in groupby(by_owner, key=lambda one: one.owner or NOBODY):
        lines += ["", f"### {_safe(owner)}", "", *_of_owner(list(several), wakes)]
    lines += _accepted([one for one in findings if one.accepted])
    lines += _left_behind(open_, sources or {})
    return "\n".join(lines) + "\n"


def _of_owner(findings: Iterable[Finding], wakes: Mapping[str, str]) -> list[str]:
    lines = ["| | table | column | what | by way of | its runs |", "|---|---|---|---|---|---|"]
    for one in findings:
        way = " → ".join(_safe(str(ref)) for ref in one.because)
        cells = [str(one.kind), _safe(one.table), _safe(one.column or ""), _safe(one.what), way, _safe(wakes.get(one.table, ""))]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _accepted(findings: Sequence[Finding]) -> list[str]:
    lines = [f"- {_safe(one.key)} — {_safe(one.accepted)}" for one in findings]
    return ["", "### accepted", "", *lines] if lines else []


def _left_behind(findings: Iterable[Finding], sources: Mapping[str, Sequence[str]]) -> list[str]:
    """Tables whose rows so far were made by the code as it was, and how to make them anew."""
    tables = dict.fromkeys(one.table for one in findings if one.kind in RERUN and not one.because)
    if not tables:
        return []
    lines = [f"- {_safe(name)}: `{backfill_command(findings, name)}`" for name in tables if name not in sources or sources[name]]
    return ["", "### rows that older code left", "", "Incremental tables keep them until they are made anew:", "", *lines]


def backfill_command(findings: Iterable[Finding], table: str) -> str:
    """The command that plans what must be made anew for the changes of a table."""
    columns = [f"{table}.{one.column}" for one in findings if one.table == table and one.column and one.kind in RERUN and not one.because]
    is_whole = any(one.table == table and one.column is None and one.kind in RERUN for one in findings)
    wanted = [table] if is_whole or not columns else columns
    return f"lakechime backfill plan --columns {','.join(dict.fromkeys(wanted))}"


def _safe(text: str) -> str:
    """Text that makes no cell, line, code or tag of its own."""
    out = text.replace("\\", "\\\\").replace("|", "\\|").replace("`", "'").replace("<", "&lt;")
    return " ".join(out.split())
