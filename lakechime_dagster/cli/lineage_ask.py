"""`lakechime lineage upstream`, `downstream`, `path`, `impact` and `readers`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import common
from lakechime_dagster.cli.common import (
    MAX_LIMIT,
    Json,
    Since,
    TimeColumn,
    Until,
    count,
    declared_lake,
    declared_subscriptions,
    note,
    open_platform,
    print_json,
    print_table,
    say,
    when,
)
from lakechime_dagster.compat import StrEnum
from lakechime_dagster.errors import NotFoundError
from lakechime_dagster.lineage.graph import by_owner

if TYPE_CHECKING:
    from lakechime_dagster.lineage.answers import ConsumerHit, Hit, Hits, Step
    from lakechime_dagster.lineage.backfill import Window
    from lakechime_dagster.lineage.backfills import ReaderPartitions
    from lakechime_dagster.lineage.columns import ColumnRef
    from lakechime_dagster.lineage.graph import TableFacts
    from lakechime_dagster.lineage.network import Certainty
    from lakechime_dagster.lineage.service import AskedLineage


class KindName(StrEnum):
    """How surely something was hit, as an option says it."""

    DIRECT = "direct"
    INDIRECT = "indirect"
    UNSURE = "unsure"


Name = Annotated[str, typer.Argument(metavar="NAME", help="A table, or a column as schema.table.column.")]
Names = Annotated[list[str], typer.Argument(metavar="NAME…", help="Tables, or columns as schema.table.column.")]
Depth = Annotated[int | None, typer.Option("--depth", min=1, max=MAX_LIMIT, help="At most so many steps.")]
OfKind = Annotated[
    KindName | None,
    typer.Option("--kind", help="Only what values come from (direct), what only decides (indirect), or what nobody can tell (unsure)."),
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=MAX_LIMIT, help="At most so many tables, the nearest ones first.")]
Partitions = Annotated[
    list[str] | None, typer.Option("--partitions", metavar="JSON", help="A partition of what changed, as a JSON array; may be repeated.")
]
ByOwner = Annotated[bool, typer.Option("--by-owner", help="Tell whose tables and dashboards are hit, and which of them are nobody's.")]
Parts = Mapping[str, "ReaderPartitions"]


def upstream(name: Name, depth: Depth = None, kind: OfKind = None, limit: Limit = 100, as_json: Json = False) -> None:
    """Tell what a table or column comes from."""
    lineage = asked()
    ref = lineage.ref(name)
    found = lineage.hits([ref], upstream=True, depth=depth, kind=certainty(kind), limit=limit)
    unknown = lineage.unknown([ref], upstream=True)
    empty = "nothing more is known" if unknown else f"{ref} comes from nothing: its values are constants"
    _answer(lineage, ref, found, unknown, empty if kind is None else f"nothing of kind {kind.value}", as_json)


def downstream(name: Name, depth: Depth = None, kind: OfKind = None, limit: Limit = 100, as_json: Json = False) -> None:
    """Tell what a table or column leads to."""
    lineage = asked()
    ref = lineage.ref(name)
    found = lineage.hits([ref], depth=depth, kind=certainty(kind), limit=limit)
    empty = f"nothing reads {ref}, as far as runs told since {when(lineage.since_ms) or 'ever'}"
    _answer(lineage, ref, found, lineage.unknown([ref]), empty if kind is None else f"nothing of kind {kind.value}", as_json)


def _answer(lineage: "AskedLineage", ref: "ColumnRef", found: "Hits", unknown: tuple[str, ...], empty: str, as_json: bool) -> None:
    if as_json:
        print_json(hits_document(lineage, [ref], found, unknown))
        return
    print_hits(lineage, found, lineage.facts(one.table for one in found.hits), empty)
    print_unknown(unknown)


def path(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A table or column where the way begins.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="A table or column where it ends.")],
    kind: Annotated[KindName, typer.Option("--kind", help="By nothing less sure than this.")] = KindName.UNSURE,
    as_json: Json = False,
) -> None:
    """Tell a shortest way from one table or column to another, with how each step leads on."""
    lineage = asked()
    start, end = lineage.ref(source), lineage.ref(target)
    if start.table == end.table:
        raise common.wrong("TO", f"{target} is of the table where the way begins; name another one")
    found = lineage.path(start, end, certainty(kind) or certainty(KindName.UNSURE))  # pyright: ignore[reportArgumentType]
    if found is None:
        raise NotFoundError(f"no way leads from {start} to {end}, as far as is known")
    if as_json:
        print_json({"from": str(start), "to": str(end), "path": path_document(found)})
        return
    print_table(("from", "by", "to"), [(step.source, ", ".join(step.kinds), step.target) for step in found], empty="")


def impact(
    names: Names,
    since: Since = None,
    until: Until = None,
    time_column: TimeColumn = None,
    partitions: Partitions = None,
    depth: Depth = None,
    kind: OfKind = None,
    limit: Limit = 100,
    by: ByOwner = False,
    as_json: Json = False,
) -> None:
    """Tell whom a change of columns hits, and what is further down and is not hit, with the reason.

    Of a change of some days or partitions it tells which partitions of the lake's tables are hit, and who is spared by that.
    """
    from lakechime_dagster.lineage.backfill import Window

    lineage = asked()
    refs = [lineage.ref(name) for name in names]
    parts = _parts(lineage, refs, Window(since=since, until=until, column=time_column), partitions or [])
    everything = lineage.hits(refs)
    found = _within(everything, parts)
    spared = {one.table: one.reason for one in lineage.not_hit(refs, everything)} | _untouched(parts)
    consumers = lineage.consumers(refs, found)
    if depth is not None or kind is not None:
        found = _within(lineage.hits(refs, depth=depth, kind=certainty(kind)), parts)
    if by:
        _print_owners(lineage, refs, found, consumers, as_json)
        return
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
    lineage: "AskedLineage", refs: "Sequence[ColumnRef]", window: "Window", partitions: Sequence[str]
) -> dict[str, "ReaderPartitions"]:
    """What of each reader is hit, where days or partitions are asked for; nothing otherwise."""
    from lakechime_dagster.lineage.backfills import Asked, partitions_hit

    if window.column is not None and not window.is_bounded:
        raise common.wrong("--time-column", "it is of --since and --until; give one of them")
    if not partitions and not window.is_bounded:
        return {}
    if partitions and window.is_bounded:
        raise common.wrong("--partitions", "give either partitions, or --since and --until")
    several = [common.partition("--partitions", text) or [] for text in partitions]
    question = Asked(columns=tuple(refs), window=window)
    return partitions_hit(lineage.platform, lineage.lake, declared_subscriptions(manual=True), question, several)


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


def _print_owners(
    lineage: "AskedLineage", refs: "Sequence[ColumnRef]", found: "Hits", consumers: "Sequence[ConsumerHit]", as_json: bool
) -> None:
    """Whose tables and dashboards are hit, and which of them belong to nobody."""
    tables = [one.table for one in found.hits]
    owned = by_owner(lineage.facts(tables), tables)
    reads: dict[str, list[str]] = {}
    for one in consumers:
        for owner in one.owners or ("",):
            reads.setdefault(owner, []).append(f"{one.consumer.kind.value} {one.consumer.name}")
    ownerless, unread = owned.pop("", ()), reads.pop("", [])
    everybody = sorted({*owned, *reads})
    if as_json:
        several = [{"owner": one, "tables": list(owned.get(one, ())), "consumers": reads.get(one, [])} for one in everybody]
        print_json(
            {
                "of": [str(ref) for ref in refs],
                "owners": several,
                "without_owner": list(ownerless),
                "consumers_without_owner": unread,
            }
        )
        return
    rows = [(one, ", ".join(owned.get(one, ())), ", ".join(reads.get(one, ()))) for one in everybody]
    print_table(("owner", "tables", "reads in"), rows, empty="nobody's tables are hit")
    for noun, nobodys in (("table", ownerless), ("reader", unread)):
        if nobodys:
            say(f"{count(len(nobodys), noun)} without an owner: {', '.join(nobodys)}")


def readers(name: Name, kind: OfKind = None, as_json: Json = False) -> None:
    """Tell who reads a table or column itself, and since when reads are recorded."""
    from lakechime_dagster.lineage.answers import Hits

    lineage = asked()
    ref = lineage.ref(name)
    found = lineage.hits([ref], depth=1, kind=certainty(kind))
    facts, unknown = lineage.facts(one.table for one in found.hits), lineage.unknown([ref])
    consumers = lineage.consumers([ref], Hits(hits=()))
    if as_json:
        ways = [{"by": one.name, "since_ts": one.since_ms, "last_ts": one.last_ms} for one in lineage.read_ways]
        hits = [hit_document(lineage, one, facts[one.table]) for one in found.hits]
        print_json(
            {
                "of": str(ref),
                "recorded_since_ts": lineage.since_ms,
                "readers": hits,
                "told_by": ways,
                "consumers": [consumer_document(lineage, one) for one in consumers],
                "not_known": list(unknown),
            }
        )
        return
    print_hits(lineage, found, facts, f"nothing reads {ref}")
    print_consumers(lineage, consumers)
    say(f"Reads are recorded since {when(lineage.since_ms)}." if lineage.since_ms is not None else "No read is recorded yet.")
    for way in lineage.read_ways:
        say(f"Reads of others are told by {way.name} since {when(way.since_ms)}, last {when(way.last_ms)}.")
    print_unknown(unknown)


def asked() -> "AskedLineage":
    """The lineage of this deployment's store and lake."""
    from lakechime_dagster.lineage.service import AskedLineage

    platform = open_platform()
    return AskedLineage(platform, declared_lake(platform.settings))


def certainty(kind: KindName | None) -> "Certainty | None":
    from lakechime_dagster.lineage.network import Certainty

    return None if kind is None else Certainty[kind.name]


def hit_document(lineage: "AskedLineage", hit: "Hit", facts: "TableFacts") -> dict[str, Any]:
    """One hit as JSON."""
    return {
        "table": hit.table,
        "layer": hit.layer,
        "kind": hit.certainty.name.lower(),
        "rows": None if hit.rows is None else hit.rows.name.lower(),
        "columns": [{"name": one.name, "kind": one.certainty.name.lower(), "layer": one.layer} for one in hit.columns],
        "path": path_document(hit.path),
        **facts_document(lineage, facts),
    }


def facts_document(lineage: "AskedLineage", facts: "TableFacts") -> dict[str, Any]:
    """What is known of a table beside its edges, as JSON."""
    return {
        "owners": list(facts.owners),
        "jobs": list(facts.jobs),
        "links": dict(facts.links),
        "last_seen_ts": facts.last_ms,
        "stale": lineage.is_stale(facts),
    }


def path_document(path: "Iterable[Step]") -> list[dict[str, Any]]:
    return [{"source": str(step.source), "kinds": list(step.kinds), "target": str(step.target)} for step in path]


def print_hits(lineage: "AskedLineage", found: "Hits", facts: "Mapping[str, TableFacts]", empty: str) -> None:
    """Hits for people, and how many were left out."""
    rows = [
        (
            hit.layer,
            hit.table,
            hit.certainty.name.lower(),
            _columns(hit),
            ", ".join(facts[hit.table].owners),
            _seen(lineage, facts[hit.table]),
            _way(hit),
        )
        for hit in found.hits
    ]
    print_table(("layer", "table", "kind", "columns", "owners", "last seen", "by way of"), rows, empty=empty)
    if found.more:
        say(f"… and {count(found.more, 'more table')}; --limit shows them")


def consumer_document(lineage: "AskedLineage", one: "ConsumerHit") -> dict[str, Any]:
    """Who reads and writes nothing, as JSON."""
    who = one.consumer
    return {
        "consumer": who.kind.value,
        "namespace": who.namespace,
        "name": who.name,
        "kind": one.certainty.name.lower(),
        "columns": [str(ref) for ref in one.refs],
        "last_read_ts": one.last_ms,
        "active": one.is_active(lineage.now_ms),
        "owners": list(one.owners),
        "link": one.link,
    }


def print_consumers(lineage: "AskedLineage", several: "Sequence[ConsumerHit]") -> None:
    """Who reads and writes nothing, or that it is not known who does."""
    if several:
        rows = [
            (
                one.consumer.kind.value,
                one.consumer.name,
                one.certainty.name.lower(),
                ", ".join(map(str, one.refs[:4])),
                ", ".join(one.owners),
                when(one.last_ms) + " (active)" * one.is_active(lineage.now_ms),
                one.link,
            )
            for one in several
        ]
        say(f"\n{count(len(several), 'reader')} that {'writes' if len(several) == 1 else 'write'} nothing:")
        print_table(("reader", "name", "kind", "columns", "owners", "last read", "link"), rows, empty="")
    elif not lineage.read_ways:
        note("not known: who reads it in dashboards or elsewhere, since nobody tells")


def print_unknown(reasons: Iterable[str]) -> None:
    """Why more may be than is shown, beside the answer."""
    for reason in reasons:
        note(f"not known: {reason}")


def _seen(lineage: "AskedLineage", facts: "TableFacts") -> str:
    return when(facts.last_ms) + " (stale)" * lineage.is_stale(facts)


def _columns(hit: "Hit", most: int = 4) -> str:
    names = [one.name for one in hit.columns[:most]] + [f"+{len(hit.columns) - most}"] * (len(hit.columns) > most)
    return ", ".join(names) or "(rows)"


def _way(hit: "Hit") -> str:
    """The tables between the two ends of a path."""
    return " → ".join(dict.fromkeys(step.target.table for step in hit.path[:-1]))


def hits_document(lineage: "AskedLineage", refs: "list[ColumnRef]", found: "Hits", unknown: tuple[str, ...]) -> dict[str, Any]:
    facts = lineage.facts(one.table for one in found.hits)
    return {
        "of": [str(ref) for ref in refs],
        "recorded_since_ts": lineage.since_ms,
        "not_known": list(unknown),
        "hits": [hit_document(lineage, one, facts[one.table]) for one in found.hits],
        "more": found.more,
    }
