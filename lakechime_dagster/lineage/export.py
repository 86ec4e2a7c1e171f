"""The graph as OpenLineage events and as a Mermaid diagram."""

import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any

from lakechime_dagster.dce.partitions import printable
from lakechime_dagster.lineage.answers import DECLARED, UNSURE, Neighbourhood
from lakechime_dagster.lineage.columns import ColumnLineage, Kind, Source
from lakechime_dagster.lineage.graph import Standing, parts_of

_ENTITIES = {'"': "#quot;", "<": "#lt;", ">": "#gt;", "#": "#35;", "&": "#amp;", "`": "#96;"}


def diagram(around: Neighbourhood) -> str:
    """The text of a flowchart, from left to right."""
    numbers = {one.table: f"t{number}" for number, one in enumerate(sorted(around.tables, key=lambda one: (one.layer, one.table)))}
    lines = ["flowchart LR", *(f'  {number}["{_shown(table)}"]' for table, number in numbers.items())]
    tables = [one for one in around.links if one.source.column is None and one.target.column is None]
    kinds: dict[tuple[str, str], set[str]] = {}
    for link in tables:
        kinds.setdefault((link.source.table, link.target.table), set()).update(link.kinds)
    for (source, target), several in sorted(kinds.items()):
        lines.append(f"  {numbers[source]} {_arrow(several)} {numbers[target]}")
    if around.more:
        lines.append(f'  more["… and {around.more} more"]')
    return "\n".join(lines) + "\n"


def _arrow(kinds: set[str]) -> str:
    if "direct" in kinds:
        return "-->"
    if kinds & {UNSURE, DECLARED}:
        return "-. not known .->" if UNSURE in kinds else "-. declared .->"
    return "-.->"


def _shown(text: str) -> str:
    return "".join(_ENTITIES.get(character, character) for character in printable(text))


PRODUCER = "urn:lakechime_dagster"
EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/JobEvent"
COLUMN_LINEAGE = "https://openlineage.io/spec/facets/1-2-0/ColumnLineageDatasetFacet.json#/$defs/ColumnLineageDatasetFacet"
SYMLINKS = "https://openlineage.io/spec/facets/1-0-1/SymlinksDatasetFacet.json#/$defs/SymlinksDatasetFacet"
OWNERSHIP = "https://openlineage.io/spec/facets/1-0-1/OwnershipJobFacet.json#/$defs/OwnershipJobFacet"
_SUBTYPES = {Kind.DRIVER: "CONDITIONAL"}  # of ours that OpenLineage has no word for

Address = Callable[[str], tuple[str, str]]


def job_events(standings: Iterable[Standing], address: Address) -> list[dict[str, Any]]:
    """One event a statement; `address` tells namespace and name of a data set."""
    return [_event(one, address) for one in standings]


def address_of(table: str, location: str | None) -> tuple[str, str]:
    """Namespace and name of a data set: of where it lies, or of one outside as its name tells them."""
    text = location if location is not None else table
    scheme, mark, rest = text.partition("://")
    if mark:
        host, _, name = rest.partition("/")
        return f"{scheme}://{host}", name or table
    if location is not None:
        return "file", location
    namespace, slash, name = text.partition("/")
    return (namespace, name) if slash else ("lakechime", table)


def _event(one: Standing, address: Address) -> dict[str, Any]:
    statement = one.statement
    owners = [{"name": owner} for owner in one.owners]
    return {
        "eventTime": dt.datetime.fromtimestamp(one.last_ms / 1000, dt.timezone.utc).isoformat(),
        "producer": PRODUCER,
        "schemaURL": EVENT,
        "job": {
            "namespace": one.producer.namespace,
            "name": one.producer.job,
            "facets": {"ownership": {"_producer": PRODUCER, "_schemaURL": OWNERSHIP, "owners": owners}} if owners else {},
        },
        "inputs": [_dataset(name, address) for name in parts_of(statement)],
        "outputs": [
            _dataset(
                statement.target,
                address,
                columnLineage={
                    "_producer": PRODUCER,
                    "_schemaURL": COLUMN_LINEAGE,
                    "fields": {column.column: _field(column, address) for column in statement.columns},
                    "dataset": [_input(source, address) for source in statement.indirect],
                },
            )
        ],
    }


def _dataset(table: str, address: Address, **facets: dict[str, Any]) -> dict[str, Any]:
    namespace, name = address(table)
    identifiers = [{"namespace": "lakechime", "name": table, "type": "TABLE"}]
    symlinks = {"symlinks": {"_producer": PRODUCER, "_schemaURL": SYMLINKS, "identifiers": identifiers}} if name != table else {}
    return {"namespace": namespace, "name": name, "facets": symlinks | facets}


def _field(column: ColumnLineage, address: Address) -> dict[str, Any]:
    return {"inputFields": [_input(source, address) for source in column.sources if source.ref.column is not None]}


def _input(source: Source, address: Address) -> dict[str, Any]:
    namespace, name = address(source.ref.table)
    kind = "DIRECT" if source.kind.is_direct else "INDIRECT"
    transformation = {
        "type": kind,
        "subtype": _SUBTYPES.get(source.kind, source.kind.value.upper()),
        "description": "",
        "masking": source.is_masking,
    }
    return {"namespace": namespace, "name": name, "field": source.ref.column or "", "transformations": [transformation]}
