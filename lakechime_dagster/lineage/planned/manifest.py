"""What the code of a lake says of its columns before any run: `lineage.json`, kept in git, byte for byte equal for equal code."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.lineage.columns import ColumnLineage, ColumnRef, Kind, Source
from lakechime_dagster.lineage.record import Statement

VERSION = 1
REMEDY = "bring it back from version control, or make it anew by `lakechime lineage plan --out FILE` where the code is that it is of"
FILE = "lineage.json"
UNTIL_IT_RUNS = "not known until it runs"  # how a reason begins that no other code would mend


@dataclass(frozen=True, kw_only=True)
class PlannedColumn:
    """A column of a table: its type as Spark writes it in JSON, and of a computed one what it comes from.

    `digest` is equal as long as its expression says the same.
    """

    name: str
    type: Any
    nullable: bool = True
    sources: tuple[Source, ...] = ()
    opaque: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    digest: str = ""

    @property
    def lineage(self) -> ColumnLineage:
        return ColumnLineage(column=self.name, sources=self.sources, opaque=self.opaque, foreign=self.foreign)


@dataclass(frozen=True, kw_only=True)
class PlannedTable:
    """A table as its code makes it, or, where `code` is None, as it is found.

    `rows` is a digest of what decides which rows there are, `laid_out` says keys, partitions and refresh mode. `unknown` says why
    something is not known until it runs; where nothing is, `columns` are those that it had when it was known, or none. `foreign`
    is code that nobody looks into and that has a say in which rows there are.
    """

    name: str
    columns: tuple[PlannedColumn, ...] = ()
    indirect: tuple[Source, ...] = ()
    inputs: tuple[str, ...] = ()
    rows: str = ""
    code: str | None = None
    laid_out: Mapping[str, str] = field(default_factory=dict, hash=False)
    owner: str = ""
    unknown: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()

    @cached_property
    def by_name(self) -> Mapping[str, PlannedColumn]:
        return {column.name: column for column in self.columns}

    @property
    def is_computed(self) -> bool:
        return self.code is not None

    @property
    def statement(self) -> Statement:
        """What it is computed from, as a run would tell it."""
        columns = tuple(column.lineage for column in self.columns)
        return Statement(
            target=self.name, columns=columns, indirect=self.indirect, inputs=self.inputs, unknown=self.unknown, foreign=self.foreign
        )


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The tables of a lake by name, and findings that a person has accepted with a reason, by their key."""

    lake: str
    tables: Mapping[str, PlannedTable]
    accepted: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """The text of the file, the same for the same manifest; each column is a line of its own, so that differences read well."""
        tables = ",\n".join(f"  {_text(name)}: {_table_text(table)}" for name, table in sorted(self.tables.items()))
        accepted = ",\n".join(f"  {_text(key)}: {_text(why)}" for key, why in sorted(self.accepted.items()))
        head = f'{{\n "version": {VERSION},\n "lake": {_text(self.lake)},\n'
        return f'{head} "tables": {{\n{tables}\n }},\n "accepted": {{\n{accepted}\n }}\n}}\n'


def manifest_in(folder: Path) -> Manifest | None:
    """The manifest that a project keeps in its folder, if it keeps one.

    Raises:
        InvalidValueError: as `read_manifest`.
    """
    path = folder / FILE
    return read_manifest(path) if path.exists() else None


def read_manifest(path: Path) -> Manifest:
    """The manifest of a file.

    Raises:
        InvalidValueError: naming the file and what of it is not as this version writes it.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidValueError("manifest", str(path), f"cannot be read: {error}; {REMEDY}") from None
    if not isinstance(value, dict) or value.get("version") != VERSION:
        said = value.get("version") if isinstance(value, dict) else None
        has = "tells no version" if said is None else f"has version {said!r}"
        raise InvalidValueError("manifest", str(path), f"{has}, this one reads {VERSION}; {REMEDY}")
    try:
        tables = {name: _table(name, one) for name, one in value["tables"].items()}
        return Manifest(lake=str(value["lake"]), tables=tables, accepted={str(k): str(v) for k, v in value["accepted"].items()})
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidValueError("manifest", str(path), f"is not whole: {error!r}; {REMEDY}") from None


def _table_text(table: PlannedTable) -> str:
    """Without what is empty, so that a change of it is all that a reader of a difference sees."""
    value = {
        "code": table.code, "inputs": list(table.inputs), "indirect": [_source_json(one) for one in table.indirect],
        "laid_out": dict(sorted(table.laid_out.items())), "owner": table.owner, "rows": table.rows, "unknown": list(table.unknown),
        "foreign": list(table.foreign),
    }  # fmt: skip
    lines = [f"   {_text(name)}: {_text(one)}" for name, one in value.items() if one not in (None, "", [], {})]
    columns = ",\n".join(f"    {_text(_column_json(column))}" for column in table.columns)
    return "{\n" + ",\n".join([*lines, f'   "columns": [\n{columns}\n   ]']) + "\n  }"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _column_json(column: PlannedColumn) -> dict[str, Any]:
    value = {
        "name": column.name, "type": column.type, "nullable": column.nullable, "digest": column.digest,
        "sources": [_source_json(one) for one in column.sources], "opaque": list(column.opaque),
        "foreign": list(column.foreign),
    }  # fmt: skip
    return {name: one for name, one in value.items() if one or name == "nullable"}


def _source_json(source: Source) -> list[Any]:
    said: list[Any] = [source.ref.table, source.ref.column, str(source.kind)]
    return [*said, "masking"] if source.is_masking else said


def _table(name: str, value: Mapping[str, Any]) -> PlannedTable:
    return PlannedTable(
        name=name, columns=tuple(_column(one) for one in value["columns"]), indirect=_sources(value.get("indirect", ())),
        inputs=tuple(value.get("inputs", ())), rows=value.get("rows", ""), code=value.get("code"), laid_out=value.get("laid_out", {}),
        owner=value.get("owner", ""), unknown=tuple(value.get("unknown", ())), foreign=tuple(value.get("foreign", ())),
    )  # fmt: skip


def _column(value: Mapping[str, Any]) -> PlannedColumn:
    return PlannedColumn(
        name=value["name"], type=value["type"], nullable=bool(value["nullable"]), sources=_sources(value.get("sources", ())),
        opaque=tuple(value.get("opaque", ())), foreign=tuple(value.get("foreign", ())), digest=value.get("digest", ""),
    )  # fmt: skip


def _sources(values: Iterable[list[Any]]) -> tuple[Source, ...]:
    return tuple(Source(ColumnRef(one[0], one[1]), Kind(one[2]), "masking" in one[3:]) for one in values)
