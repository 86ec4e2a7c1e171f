"""The code location `outside`: external assets of what only runs and other programs report.
It is reloaded when that changes.

What it says never decides anything: it has no job, sensor or executable asset, so that no run loads
it. Where the store or the lake cannot be read it is empty, since a picture that is missing hinders
nobody.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import dagster as dg

from lakechime_dagster.assets.report import page_link
from lakechime_dagster.lineage.columns import ConsumerKind
from lakechime_dagster.lineage.declared import outside_inputs
from lakechime_dagster.lineage.external import (
    ExternalTable,
    Looked,
    Outside,
    UsedConsumer,
    look_outside,
)
from lakechime_dagster.runtime.names import asset_key, dagster_name
from lakechime_dagster.runtime.resource import lake_of_definitions
from lakechime_dagster.settings import Settings, lake_name, load_settings, own_definitions
from lakechime_dagster.tables.cdc import BronzeTable
from lakechime_dagster.tables.events import EventTable
from lakechime_dagster.tables.lake import Lake, find_lake, named_types
from lakechime_dagster.tables.names import OWNER
from lakechime_dagster.triggers.schedule import from_milliseconds

GROUPS = {
    ConsumerKind.DASHBOARD: "dashboards",
    ConsumerKind.USER: "people",
    ConsumerKind.JOB: "jobs",
}
ACTIVE_TAG = (
    "lakechime/active"  # of who read in the last day; `tag:"lakechime/active"=yes` selects them
)
MAX_SHOWN = 100  # names in a text
MAX_PART = 200  # characters of a part of a key
SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*?)(://|/)")


def outside_specs(looked: Looked, lake: Lake, page_url: str = "") -> list[dg.AssetSpec]:
    """The external assets, each key once; `page_url` is where the page of lineage is."""
    outside = _without_circles(looked.outside, lake)
    taken = {asset_key(table.name) for table in (*lake.tables, *lake.groups)}
    found: list[dg.AssetSpec] = []
    several = [_consumer(one, looked.now_ms) for one in outside.consumers] + [
        _table(one, page_url) for one in outside.tables
    ]
    for spec in several:
        if spec.key not in taken:
            taken.add(spec.key)
            found.append(spec)
    return found


def _consumer(one: UsedConsumer, now_ms: int) -> dg.AssetSpec:
    who, is_active = one.consumer, one.is_active(now_ms)
    metadata: dict[str, Any] = {
        "read last": _said(one.last_ms),
        "read in the last 24 hours": is_active,
        "reads": _listed(one.tables),
    }
    return dg.AssetSpec(
        dg.AssetKey([GROUPS[who.kind], *_parts([who.namespace, who.name])]),
        deps=_deps(one.tables),
        group_name=GROUPS[who.kind],
        kinds={who.kind.value, dagster_name(who.namespace)[:MAX_PART]}
        if who.namespace
        else {who.kind.value},
        owners=_owners(one.owners),
        tags={ACTIVE_TAG: "yes"} if is_active else {},
        description=f"{who.kind.value.capitalize()} {who.name}, as {who.namespace or 'others'} reported.",
        metadata=metadata | _owned(one.owners) | _link(one.link),
    )


def _table(one: ExternalTable, page_url: str) -> dg.AssetSpec:
    found = SCHEME.match(one.table)
    scheme = dagster_name(found.group(1).lower()) if found else "table"
    metadata: dict[str, Any] = {
        "recorded last": _said(one.last_ms),
        "is read by": _listed(one.readers) or "nobody, as far as is known",
    }
    return dg.AssetSpec(
        asset_key(one.table),
        deps=_deps(one.inputs),
        group_name=scheme if found else "external",
        kinds={scheme},
        owners=_owners(one.owners),
        description=f"{one.table}, which the lake does not declare, as runs recorded.",
        metadata=metadata | _owned(one.owners) | page_link(page_url, one.table),
    )


def _without_circles(outside: Outside, lake: Lake) -> Outside:
    """The same without inputs that would close a circle, on which Dagster could not sort assets,
    with what the lake declares.
    """
    inputs = {
        **_declared(lake),
        **{asset_key(one.table): _deps(one.inputs) for one in outside.tables},
    }
    circles = _in_circles(inputs)
    tables = [
        replace(one, inputs=tuple(name for name in one.inputs if asset_key(name) not in circles))
        if asset_key(one.table) in circles
        else one
        for one in outside.tables
    ]
    return replace(outside, tables=tuple(tables))


def _in_circles(inputs: Mapping[dg.AssetKey, Iterable[dg.AssetKey]]) -> set[dg.AssetKey]:
    """What may stand on a circle of inputs: all of those that do, and what lies between two
    circles.
    """
    before = {name: {one for one in several if one in inputs} for name, several in inputs.items()}
    left = set(before)
    while True:
        fed = {name for name in left if before[name] & left}
        feeding = {one for name in fed for one in before[name] & left}
        if fed & feeding == left:
            return left
        left = fed & feeding


def _declared(lake: Lake) -> dict[dg.AssetKey, list[dg.AssetKey]]:
    """What the assets of a lake depend on, by its declaration."""
    fed = {
        table: outside_inputs(table) if isinstance(table, BronzeTable | EventTable) else ()
        for table in lake.targets
    }
    inputs = {asset_key(table.name): _deps((*table.inputs, *more)) for table, more in fed.items()}
    for group in lake.groups:
        written = [group.name, *(table.name for table in named_types(lake, group))]
        inputs |= {asset_key(name): [asset_key(group.stream.table.name)] for name in written}
    return inputs


def _deps(tables: Iterable[str]) -> list[dg.AssetKey]:
    return list(dict.fromkeys(asset_key(table) for table in tables))


def _parts(parts: Iterable[str]) -> Iterator[str]:
    """Parts of a key that are not empty, nor so long that no column of a database holds them."""
    return (part[:MAX_PART] for part in parts if part)


def _owners(owners: Iterable[str]) -> list[str]:
    """Those that Dagster takes; others are in the metadata."""
    return [owner for owner in owners if OWNER.fullmatch(owner)]


def _owned(owners: Iterable[str]) -> dict[str, Any]:
    others = [owner for owner in owners if not OWNER.fullmatch(owner)]
    return {"owner": ", ".join(others)} if others else {}


def _link(link: str) -> dict[str, Any]:
    """Where it is; a link of another kind than those of the web is shown as text, since whoever
    reported it may mean harm.
    """
    if not link:
        return {}
    return {
        "link": dg.MetadataValue.url(link)
        if link.lower().startswith(("http://", "https://"))
        else dg.MetadataValue.text(link)
    }


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - MAX_SHOWN:,} more" if len(names) > MAX_SHOWN else ""
    return ", ".join(names[:MAX_SHOWN]) + more


def _said(moment: int) -> str:
    return f"{from_milliseconds(moment):%Y-%m-%d %H:%M} UTC"


logger = logging.getLogger(__name__)


def outside_definitions(settings: Settings) -> dg.Definitions:
    """What is outside of the lake of these settings, as its store has it now."""
    try:
        lake = find_lake(own_definitions(settings), lake_name(settings), lake_of_definitions)
        looked = look_outside(settings, lake)
        specs = outside_specs(looked, lake, settings.lineage_url)
    except Exception as error:  # noqa: BLE001 - a lake may fail in any way; the location that runs it says so
        logger.warning("nothing is shown of what is outside of the lake: %s", error)
        return dg.Definitions(metadata={"outside": f"nothing is shown: {error}"})
    if looked.outside.more:
        logger.warning("outside of the lake: %s", looked.sentence)
    return dg.Definitions(assets=specs, metadata={"outside": looked.sentence})


@dg.definitions
def defs() -> dg.Definitions:
    """The code location."""
    return outside_definitions(load_settings())
