"""`lakechime lineage impact`: whom a change of columns hits, of all rows or of some days or partitions, and whom it does not."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import parse
from lakechime_dagster.cli.context import declared_flows
from lakechime_dagster.cli.lineage.hits import hits_document
from lakechime_dagster.cli.lineage.names import (
    At,
    Depth,
    Limit,
    Names,
    OfKind,
    asked,
    certainty,
    consumer_document,
    print_consumers,
    print_hits,
    print_unknown,
)
from lakechime_dagster.cli.options import Json, Since, TimeColumn, Until
from lakechime_dagster.cli.output import count, print_json, print_table, say

if TYPE_CHECKING:
    from lakechime_dagster.lineage.backfill.window import Window
    from lakechime_dagster.lineage.columns import ColumnRef
    from lakechime_dagster.lineage.graph.answers import Hits
    from lakechime_dagster.resources.lineage.asked import AskedLineage
    from lakechime_dagster.resources.lineage.impact import ReaderPartitions

Partitions = Annotated[
    list[str] | None, typer.Option("--partitions", metavar="JSON", help="A partition of what changed, as a JSON array; may be repeated.")
]  # fmt: skip
Parts = Mapping[str, "ReaderPartitions"]


def impact(
    names: Names, since: Since = None, until: Until = None, time_column: TimeColumn = None, partitions: Partitions = None,
    depth: Depth = None, at: At = None, kind: OfKind = None, limit: Limit = 100, as_json: Json = False,
) -> None:  # fmt: skip
    """Tell whom a change of columns hits, and what is further down and is not hit, with the reason.

    Of a change of some days or partitions it tells which partitions of the lake's tables are hit, and who is spared by that.
    """
    from lakechime_dagster.lineage.backfill.window import Window

    lineage = asked(at)
    refs = [lineage.ref(name) for name in names]
    parts = _parts(lineage, refs, Window(since=since, until=until, column=time_column), partitions or [], at)
    everything = lineage.hits(refs)
    found = _within(everything, parts)
    spared = {one.table: one.reason for one in lineage.not_hit(refs, everything)} | _untouched(parts)
    consumers = lineage.consumers(refs, found)
    if depth is not None or kind is not None:
        found = _within(lineage.hits(refs, depth=depth, kind=certainty(kind)), parts)
    unknown = lineage.unknown(refs)
    if as_json:
        told: dict[str, Any] = {"consumers": [consumer_document(lineage, one) for one in consumers]}
        told["not_hit"] = [{"table": table, "reason": reason} for table, reason in spared.items()]
        print_json(hits_document(lineage, refs, found, unknown) | told | ({"partitions": _documents(parts)} if parts else {}))
        return
    shown = replace(found, hits=found.hits[:limit], more=len(found.hits[limit:]))
    print_hits(lineage, shown, lineage.facts(one.table for one in shown.hits), "nothing is hit, as far as is known")
    _print_parts(parts)
    print_consumers(lineage, consumers)
    if spared:
        say(f"\n{count(len(spared), 'table')} further down {'is' if len(spared) == 1 else 'are'} not hit:")
        print_table(("table", "why not"), spared.items(), empty="")
    print_unknown(unknown)


def _parts(
    lineage: "AskedLineage", refs: "Sequence[ColumnRef]", window: "Window", partitions: Sequence[str], at: str | None
) -> dict[str, "ReaderPartitions"]:
    """What of each reader is hit, where days or partitions are asked for; nothing otherwise."""
    from lakechime_dagster.resources.backfill import Asked
    from lakechime_dagster.resources.lineage.impact import partitions_hit

    if window.column is not None and not window.is_bounded:
        raise parse.wrong("--time-column", "it is of --since and --until; give one of them")
    if not partitions and not window.is_bounded:
        return {}
    if partitions and window.is_bounded:
        raise parse.wrong("--partitions", "give either partitions, or --since and --until")
    if at is not None:
        raise parse.wrong("--at", "which partitions are hit is told of now; leave out --at, or the partitions and days")
    several = [parse.partition("--partitions", text) or [] for text in partitions]
    question = Asked(columns=tuple(refs), window=window)
    return partitions_hit(lineage.platform, lineage.lake, declared_flows(manual=True), question, several)


def _within(found: "Hits", parts: Parts) -> "Hits":
    """Without the tables of which no partition is hit."""
    return replace(found, hits=tuple(one for one in found.hits if one.table not in parts or parts[one.table].is_hit))


def _untouched(parts: Parts) -> dict[str, str]:
    return {table: one.what for table, one in parts.items() if not one.is_hit}


def _documents(parts: Parts) -> list[dict[str, Any]]:
    return [
        {"table": table, "partitions": None if one.hit is None else list(one.hit), "partitions_not_hit": one.others, "what": one.what}
        for table, one in parts.items()
        if one.is_hit
    ]


def _print_parts(parts: Parts, most: int = 8) -> None:
    if not parts:
        return
    rows = []
    for table, one in parts.items():
        if one.hit:
            more = f" and {len(one.hit) - most} more" if len(one.hit) > most else ""
            rows.append((table, ", ".join(one.hit[:most]) + more, one.others))
        elif one.is_hit:
            rows.append((table, one.what, ""))
    say("\nof tables of the lake is hit:")
    print_table(("table", "what", "partitions not hit"), rows, empty="nothing")
