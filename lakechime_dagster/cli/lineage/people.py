"""`lakechime lineage readers | owners`: who reads a table or column itself, and whose tables a change of columns hits."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakechime_dagster.cli.lineage.names import (
    At,
    Depth,
    Name,
    Names,
    OfKind,
    asked,
    certainty,
    consumer_document,
    hit_document,
    print_consumers,
    print_hits,
    print_unknown,
)
from lakechime_dagster.cli.options import Json
from lakechime_dagster.cli.output import count, print_json, print_table, say, when
from lakechime_dagster.lineage.graph.facts import by_owner

if TYPE_CHECKING:
    from lakechime_dagster.lineage.columns import ColumnRef
    from lakechime_dagster.lineage.graph.answers import Hits
    from lakechime_dagster.resources.lineage.asked import AskedLineage


def readers(name: Name, at: At = None, kind: OfKind = None, as_json: Json = False) -> None:
    """Tell who reads a table or column itself, and since when reads are recorded."""
    from lakechime_dagster.lineage.graph.answers import Hits

    lineage = asked(at)
    ref = lineage.ref(name)
    found = lineage.hits([ref], depth=1, kind=certainty(kind))
    facts, unknown = lineage.facts(one.table for one in found.hits), lineage.unknown([ref])
    consumers = lineage.consumers([ref], Hits(hits=()))
    if as_json:
        ways = [{"by": one.name, "since_ts": one.since_ms, "last_ts": one.last_ms} for one in lineage.read_ways]
        hits = [hit_document(lineage, one, facts[one.table]) for one in found.hits]
        print_json({
            "of": str(ref), "recorded_since_ts": lineage.since_ms, "readers": hits, "told_by": ways,
            "consumers": [consumer_document(lineage, one) for one in consumers], "not_known": list(unknown),
        })  # fmt: skip
        return
    print_hits(lineage, found, facts, f"nothing reads {ref}")
    print_consumers(lineage, consumers)
    say(f"Reads are recorded since {when(lineage.since_ms)}." if lineage.since_ms is not None else "No read is recorded yet.")
    for way in lineage.read_ways:
        say(f"Reads of others are told by {way.name} since {when(way.since_ms)}, last {when(way.last_ms)}.")
    print_unknown(unknown)


def owners(names: Names, depth: Depth = None, at: At = None, kind: OfKind = None, as_json: Json = False) -> None:
    """Tell whose tables and dashboards a change of columns hits, and which of those hit belong to nobody."""
    lineage = asked(at)
    refs = [lineage.ref(name) for name in names]
    found = lineage.hits(refs, depth=depth, kind=certainty(kind))
    facts = lineage.facts(one.table for one in found.hits)
    owned = by_owner(facts, (one.table for one in found.hits))
    readers = _readers(lineage, refs, found)
    ownerless, unread = owned.pop("", ()), readers.pop("", ())
    everybody = sorted({*owned, *readers})
    if as_json:
        several = [{"owner": one, "tables": list(owned.get(one, ())), "consumers": list(readers.get(one, ()))} for one in everybody]
        print_json({
            "of": [str(ref) for ref in refs], "owners": several, "without_owner": list(ownerless), "consumers_without_owner": list(unread),
        })  # fmt: skip
        return
    rows = [(one, ", ".join(owned.get(one, ())), ", ".join(readers.get(one, ()))) for one in everybody]
    print_table(("owner", "tables", "reads in"), rows, empty="nobody's tables are hit")
    for noun, several in (("table", ownerless), ("reader", unread)):
        if several:
            say(f"{count(len(several), noun)} without an owner: {', '.join(several)}")


def _readers(lineage: "AskedLineage", refs: "Sequence[ColumnRef]", found: "Hits") -> dict[str, tuple[str, ...]]:
    """Who reads what is hit and writes nothing, by owner; those of nobody under an empty name."""
    several: dict[str, list[str]] = {}
    for one in lineage.consumers(refs, found):
        for owner in one.owners or ("",):
            several.setdefault(owner, []).append(f"{one.consumer.kind.value} {one.consumer.name}")
    return {owner: tuple(names) for owner, names in several.items()}
