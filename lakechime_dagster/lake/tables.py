"""Declared tables: sources that somebody else writes, and tables that this lake computes."""

import ast
import datetime as dt
import functools
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.event import TableFormat
from lakechime_dagster.dce.partition import PartitionLevels
from lakechime_dagster.errors import DeclarationError, shown
from lakechime_dagster.lake.accounts import Account, checked_account
from lakechime_dagster.lake.maintenance import Maintenance, checked_maintenance
from lakechime_dagster.lake.names import (
    MAX_TABLE_NAME,
    checked_columns,
    checked_levels,
    checked_owner,
    checked_table_name,
    checked_word,
)
from lakechime_dagster.lake.personal import PersonalColumns, check_public, check_unlisted, checked_personal
from lakechime_dagster.lake.reads import Passthrough, Read, Readable
from lakechime_dagster.triggers.model import Trigger

LEAVE_OUT, BY_PARAMETER = "leave it out", "annotate a parameter of the function with the resource"
ENGINE_OWNED = {  # arguments of `@dg.asset` without which a declared table would not run, with what to do instead
    **dict.fromkeys(("name", "key", "key_prefix", "deps", "ins", "partitions_def", "backfill_policy", "compute_fn"), LEAVE_OUT),
    **dict.fromkeys(("config_schema", "dagster_type", "output_required", "is_virtual"), LEAVE_OUT),
    **dict.fromkeys(("required_resource_keys", "resource_defs"), BY_PARAMETER),
    "check_specs": "write a check of your own with @dg.asset_check(asset=…)",
}


class RefreshMode(StrEnum):
    """How a computed table is kept equal to its definition.

    ROWS computes the rows of the range only (append, or merge by key); AFFECTED_KEYS recomputes the groups that the
    range touched; PARTITIONS the partitions that it touched, replacing them; FULL everything.
    """

    ROWS = "rows"
    AFFECTED_KEYS = "affected_keys"
    PARTITIONS = "partitions"
    FULL = "full"


@dataclass(frozen=True, kw_only=True)
class WrittenTable(Readable):
    """What the declarations of all tables that the lake writes share.

    `maintenance` says how its files are kept, `write_as` which account writes them. `personal` columns have no statistics in the
    table's log; a `public` table may hold nothing that is. `dagster` passes further arguments of `dg.asset` through, but those in
    `ENGINE_OWNED`; its metadata come beside those of the declaration.
    """

    name: str
    partitioned_by: Mapping[str, str] | PartitionLevels | None = None
    owner: str | None = None
    location: str | None = None
    format: str | TableFormat = TableFormat.DELTA
    fresh_within: dt.timedelta | None = None
    maintenance: Maintenance | None = None
    write_as: Account | None = None
    description: str = ""
    group: str | None = None
    kinds: tuple[str, ...] = ()
    personal: PersonalColumns = field(default_factory=dict, hash=False)
    public: bool = False
    dagster: Passthrough = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_common(self)
        object.__setattr__(self, "personal", checked_personal(self.name, self.personal, levels=self.levels.names))
        check_public(self.name, self.public, self.personal)


@dataclass(frozen=True)
class SourceTable(Readable):
    """A table that is written elsewhere.

    `partitioned_by` maps each partition column to its type. `location` is `<warehouse>/<schema>/<table>` unless
    given. A table whose newest event is older than `fresh_within` is stale. `columns` says which hold personal data
    (`{"email": personal("email")}`); a `public` table may hold none. `dagster` passes further arguments of
    `dg.AssetSpec` through; its metadata come beside those of the declaration.
    """

    name: str
    partitioned_by: Mapping[str, str] | PartitionLevels | None = field(default=None, kw_only=True)
    owner: str | None = field(default=None, kw_only=True)
    location: str | None = field(default=None, kw_only=True)
    format: str | TableFormat = field(default=TableFormat.DELTA, kw_only=True)
    fresh_within: dt.timedelta | None = field(default=None, kw_only=True)
    description: str = field(default="", kw_only=True)
    group: str | None = field(default=None, kw_only=True)
    kinds: tuple[str, ...] = field(default=(), kw_only=True)
    columns: PersonalColumns = field(default_factory=dict, kw_only=True, hash=False)
    public: bool = field(default=False, kw_only=True)
    dagster: Passthrough = field(default_factory=dict, kw_only=True, hash=False)

    def __post_init__(self) -> None:
        checked_table_name(self.name, "SourceTable", MAX_TABLE_NAME)
        check_common(self)
        object.__setattr__(self, "columns", checked_personal(self.name, self.columns, levels=self.levels.names))
        check_public(self.name, self.public, self.columns)
        if self.fresh_within is not None and self.fresh_within < dt.timedelta(minutes=1):
            remedy = f"{shown(self.fresh_within)} is less than a minute, the least that Dagster watches a source by"
            raise DeclarationError(self.name, "fresh_within", remedy)

    @property
    def personal(self) -> PersonalColumns:
        """The columns that hold personal data."""
        return self.columns


@dataclass(frozen=True, kw_only=True)
class Injection:
    """A parameter of a table's function that is not an input: `context`, a config, or a resource by its annotation."""

    name: str
    annotation: Any = field(default=None, hash=False)


@dataclass(frozen=True, kw_only=True)
class LakeTable(WrittenTable):
    """A table that this lake computes, by a Python function over DataFrames or by Spark SQL.

    `reads` maps the name by which the function or the SQL calls an input to how it is read. `key_columns` says, for
    `affected_keys`, per table read as changes and per key, which columns of that table give the key: one for each that
    the function's result, or the key's term in the SQL, mentions.
    `expect` maps the name of a constraint to a SQL condition that each row must meet; a row that does not is
    quarantined. `watermark` is the event-time column. Calling the table calls its function.
    """

    keys: tuple[str, ...] = ()
    refresh: RefreshMode = RefreshMode.ROWS
    reads: Mapping[str, Read] = field(default_factory=dict, hash=False)
    compute: Callable[..., Any] | None = None
    sql: str | None = None
    key_columns: Mapping[str, Mapping[str, Mapping[str, str]]] = field(default_factory=dict, hash=False)
    injected: tuple[Injection, ...] = ()
    trigger: Trigger | None = None
    expect: Mapping[str, str] = field(default_factory=dict, hash=False)
    watermark: str | None = None

    def __post_init__(self) -> None:
        checked_table_name(self.name, "table")
        object.__setattr__(self, "keys", checked_columns(self.name, "keys", self.keys))
        object.__setattr__(self, "refresh", checked_refresh(self.name, self.refresh))
        for name in ("reads", "key_columns", "expect"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        if self.watermark is not None:
            checked_columns(self.name, "watermark", [self.watermark])
        super().__post_init__()
        told = [] if self.watermark is None else [self.watermark]
        check_unlisted(self.name, "watermark", told, self.personal, "its newest value stands in the log; name another time")
        if self.fresh_within is not None and self.watermark is None:
            raise DeclarationError(self.name, "fresh_within", "is measured by the watermark; give watermark=, the event-time column, too")

    @property
    def inputs(self) -> tuple[str, ...]:
        """The tables it reads, rejoined ones included, each once, in the order of the declaration."""
        named = [name for read in self.reads.values() for name in (read.table, read.rejoin) if name is not None]
        return tuple(dict.fromkeys(named))

    @property
    def __name__(self) -> str:
        return getattr(self.compute, "__name__", self.name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the decorated function returns for these DataFrames."""
        if self.compute is None:
            raise DeclarationError(self.name, "call", "is written in SQL; give its text, `.sql`, to spark.sql()")
        return self.compute(*args, **kwargs)


def code_digest(table: LakeTable) -> str:
    """A digest of what a table is computed by: its `code_version` if it declares one, else its SQL, else its function's own source.

    Comments, docstrings, layout and decorators do not count, nor does what the function calls or keeps of where it was made.
    """
    version = table.dagster.get("code_version")
    if version is not None:
        text = f"code_version {version}"
    elif table.sql is not None:
        from lakechime_dagster.lake.sql import normalized  # which has the SQL parser

        text = normalized(table.sql)
    else:
        text = "" if table.compute is None else _source(table.compute)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16] if text else ""


def _source(compute: Callable[..., Any]) -> str:
    function = inspect.unwrap(compute.func if isinstance(compute, functools.partial) else compute)
    try:
        source = textwrap.dedent(inspect.getsource(function if inspect.isroutine(function) else type(function)))
    except (OSError, TypeError):  # such as typed in a shell
        code = getattr(function, "__code__", None)
        return repr(function) if code is None else f"{code.co_code.hex()} {code.co_names}"
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a lambda within a statement
        return source
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            node.decorator_list = []
            if ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def checked_refresh(table: str, value: object) -> RefreshMode:
    """The refresh mode of that name."""
    try:
        return RefreshMode(str(value))
    except ValueError:
        raise DeclarationError(table, "refresh", f"{shown(value)} is none of {', '.join(RefreshMode)}") from None


def check_common(table: Readable) -> None:
    """Check and freeze the fields that all declared tables share."""
    name = table.name
    object.__setattr__(table, "partitioned_by", checked_levels(name, table.partitioned_by))
    object.__setattr__(table, "format", _format(name, table.format))
    checked_owner(name, table.owner)
    checked_word(name, "group", table.group)
    object.__setattr__(table, "kinds", checked_columns(name, "kinds", table.kinds))
    if table.location is not None and (not isinstance(table.location, str) or not table.location.strip()):
        raise DeclarationError(name, "location", f"{shown(table.location)} is not a path or URL; leave it out for the warehouse's own")
    if table.fresh_within is not None and not (isinstance(table.fresh_within, dt.timedelta) and table.fresh_within > dt.timedelta(0)):
        raise DeclarationError(name, "fresh_within", f"{shown(table.fresh_within)} is not a positive timedelta")
    checked_maintenance(name, getattr(table, "maintenance", None))
    checked_account(name, getattr(table, "write_as", None), table.location)
    if not isinstance(table.description, str):
        raise DeclarationError(name, "description", f"{shown(table.description)} is not text")
    if not isinstance(table.dagster, Mapping):
        raise DeclarationError(name, "dagster", f"{shown(table.dagster)} is not a map of arguments")
    if not isinstance(table.dagster.get("metadata", {}), Mapping):
        raise DeclarationError(name, "dagster", f"the metadata {shown(table.dagster['metadata'])} are no map of names to values")
    owned = [argument for argument in table.dagster if argument in ENGINE_OWNED]
    if owned:
        raise DeclarationError(name, "dagster", f"{shown(owned[0])} is set from the declaration itself; {ENGINE_OWNED[owned[0]]}")
    object.__setattr__(table, "dagster", MappingProxyType(dict(table.dagster)))


def _format(table: str, value: object) -> TableFormat:
    try:
        return TableFormat(str(value).upper())
    except ValueError:
        raise DeclarationError(table, "format", f"{shown(value)} is none of {', '.join(kind.lower() for kind in TableFormat)}") from None
