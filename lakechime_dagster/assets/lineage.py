"""What a materialisation shows of the lineage of its columns: for Dagster, and as a table that a person reads."""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

import dagster as dg

from lakechime_dagster.lake.lake import Lake, Target
from lakechime_dagster.lineage.columns import ColumnLineage, Source
from lakechime_dagster.lineage.record import Statement
from lakechime_dagster.resources.keys import asset_key
from lakechime_dagster.resources.lineage.runs import Recorded

MAX_PAIRS = 1_000  # of a column and a source: more is 100 kB in each materialisation
MAX_SHOWN = 100  # columns in the table


def lineage_metadata(recorded: Recorded | None) -> dict[str, Any]:
    """Metadata of what a run was seen to compute; none where it was not seen. Dagster is told what is new alone."""
    if recorded is None:
        return {}
    statement = recorded.statement
    metadata: dict[str, Any] = {"columns come from": dg.MetadataValue.md(_table(statement))}
    deps = {column.column: _deps(column) for column in statement.columns if column.column}
    pairs = sum(len(several) for several in deps.values())
    if 0 < pairs <= MAX_PAIRS and recorded.is_new:
        metadata["dagster/column_lineage"] = dg.TableColumnLineage(deps_by_column=deps)
    elif pairs > MAX_PAIRS:
        metadata["column lineage"] = f"{pairs:,} pairs of columns, more than Dagster is told; ask `lakechime lineage`"
    return metadata


def page_link(page_url: str, table: str) -> dict[str, Any]:
    """A link to the table on the page of lineage; none where it is not said where that is."""
    if not page_url:
        return {}
    return {"lineage": dg.MetadataValue.url(f"{page_url.rstrip('/')}/lineage?{urlencode({'table': table})}")}


def linked(
    asset: dg.AssetSpec | dg.AssetsDefinition, tables: Mapping[dg.AssetKey, str], page_url: str
) -> dg.AssetSpec | dg.AssetsDefinition:  # fmt: skip
    """An asset that links to its table on the page, before any run of it too; `tables` are their names by key."""

    def of_table(spec: dg.AssetSpec) -> dg.AssetSpec:
        name = tables.get(spec.key)
        return spec if name is None else spec.merge_attributes(metadata=page_link(page_url, name))

    if not page_url:
        return asset
    return of_table(asset) if isinstance(asset, dg.AssetSpec) else asset.map_asset_specs(of_table)


def _deps(column: ColumnLineage) -> list[dg.TableColumnDep]:
    """The columns whose values are in a column; those that only decide are not Dagster's."""
    refs = sorted({source.ref for source in column.sources if source.kind.is_direct and source.ref.column is not None})
    return [dg.TableColumnDep(asset_key=asset_key(ref.table), column_name=str(ref.column)) for ref in refs]


def _table(statement: Statement) -> str:
    lines = ["| column | from | decided by | not known |", "|---|---|---|---|"]
    for column in statement.columns[:MAX_SHOWN]:
        direct = [source for source in column.sources if source.kind.is_direct]
        others = [source for source in column.sources if not source.kind.is_direct]
        made_of = _sources(direct) or ("" if column.not_known else "constant")
        cells = (column.column, made_of, _sources(others), "; ".join(column.not_known))
        lines.append(f"| {' | '.join(_cell(one) for one in cells)} |")
    if len(statement.columns) > MAX_SHOWN:
        lines.append(f"| and {len(statement.columns) - MAX_SHOWN} more | | | |")
    lines += ["", f"rows are decided by: {_cell(_sources(statement.indirect)) or 'nothing but what there is'}"]
    lines += [f"- not known: {_cell(why)}" for why in statement.not_known]
    return "\n".join(lines)


def _sources(sources: Iterable[Source]) -> str:
    return ", ".join(f"{one.ref} ({one.kind}{', masked' if one.is_masking else ''})" for one in sources)


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def undeclared(lake: Lake, table: Target, statements: Iterable[Statement]) -> Mapping[str, str]:
    """Inputs that were seen and are not declared: no trigger waits for them, and no order of runs minds them. Each with what to add."""
    declared = {*table.inputs, table.name}
    known = {one.name for one in lake.tables}
    seen = {name for statement in statements for name in statement.inputs} - declared
    return {name: _remedy(name, name in known) for name in sorted(seen)}


def _remedy(name: str, is_known: bool) -> str:
    short = name.rsplit("/", 1)[-1].rsplit(".", 1)[-1]
    if is_known:
        return f'add "{short}": {short}.snapshot() to reads=, where {short} is the declaration of {name}'
    return f'declare SourceTable("outside.{short}", storage=Storage(location=…)) for {name}, and add it to reads='
