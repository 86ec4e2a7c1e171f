"""Tables as Dagster's assets: the keys of assets and of their checks, and a selection in Dagster's
own syntax.
"""

import warnings
from collections.abc import Iterable, Iterator

import dagster as dg

from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.runtime.names import (
    EACH_EVENT_ONCE,
    KEEPS_UP,
    NOTHING_LOST,
    SAME_AS_DATABASE,
    asset_name,
)
from lakechime_dagster.tables.cdc import CDCTable
from lakechime_dagster.tables.events import EventGroup
from lakechime_dagster.tables.lake import Lake, Table
from lakechime_dagster.tables.tables import SourceTable


def asset_key(table: str) -> dg.AssetKey:
    """The asset key of a table: its name split at dots, and of one outside of the lake, which has
    slashes, at these alone.
    """
    text = table if "/" in table else asset_name(table)
    return dg.AssetKey([part for part in text.split("/") if part] or [table])


def verify_check_key(group: EventGroup) -> dg.AssetCheckKey:
    """The check of a group that no execution of it reports."""
    return dg.AssetCheckKey(asset_key(group.name), EACH_EVENT_ONCE)


def monitor_check_keys(table: CDCTable, *, may_compare: bool = True) -> list[dg.AssetCheckKey]:
    """The checks by which a table is watched.

    That it keeps up; where the topic of transactions is declared that nothing of them is lost;
    where its database is declared that it is the same.
    """
    names = [KEEPS_UP] + [NOTHING_LOST] * bool(table.bronze.source.transactions)
    if table.monitor is not None and table.monitor.is_comparing:
        names += [SAME_AS_DATABASE] * may_compare
    return [dg.AssetCheckKey(asset_key(table.name), name) for name in names]


def selected_tables(lake: Lake, selection: str) -> tuple[str, ...]:
    """The tables that a selection such as `group:gold`, `key:"silver/flights"+` or
    `owner:"team:ops"` names, inputs first.

    Raises:
        InvalidValueError: it is no selection, or no table of the lake is in it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # Dagster warns that its syntax may change
        try:
            keys = dg.AssetSelection.from_string(selection).resolve(_assets(lake))
        except dg.DagsterError as error:
            reason = str(error).splitlines()[0]
            raise InvalidValueError(
                "selection", selection, f"is no selection of this lake's assets: {reason}"
            ) from None
    found = tuple(table.name for table in lake.tables if asset_key(table.name) in keys)
    if not found:
        raise InvalidValueError(
            "selection",
            selection,
            "selects no table of this lake; try it in the field above the asset graph",
        )
    return found


def _assets(lake: Lake) -> list[dg.AssetsDefinition]:
    """Assets that a selection can distinguish: computed tables, and those that are written
    externally.
    """
    sources = [_spec(table, ()) for table in lake.sources]
    computed = [_spec(table, table.inputs) for table in lake.targets]

    @dg.multi_asset(specs=computed, name="selected")
    def selected() -> Iterator[dg.MaterializeResult]:
        """Is never run."""
        yield from ()

    return [
        *([dg.AssetsDefinition(specs=sources)] if sources else []),
        *([selected] if computed else []),
    ]


def _spec(table: Table, inputs: Iterable[str]) -> dg.AssetSpec:
    kinds = {*table.kinds} or (
        {"deltalake"} if isinstance(table, SourceTable) else {"deltalake", "spark"}
    )
    given = {
        "group_name": table.group or table.name.split(".")[0],
        "owners": [table.owner] if table.owner else None,
        "kinds": kinds,
        **{
            name: value
            for name, value in table.dagster.items()
            if name in ("tags", "group_name", "owners", "kinds", "metadata")
        },
    }
    return dg.AssetSpec(asset_key(table.name), deps=[asset_key(name) for name in inputs], **given)
