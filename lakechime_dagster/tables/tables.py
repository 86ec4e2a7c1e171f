"""Declared tables: sources that are written externally, and tables that this lake computes."""

import ast
import datetime as dt
import functools
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from types import MappingProxyType
from typing import Any, ClassVar

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.events import NamedTable, TableFormat
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.errors import DeclarationError, shown
from lakechime_dagster.tables.maintenance import Maintenance
from lakechime_dagster.tables.names import (
    MAX_TABLE_NAME,
    Account,
    checked_columns,
    checked_table_name,
    table_of_lake,
)
from lakechime_dagster.tables.options import (
    Asset,
    OnChange,
    Passthrough,
    PersonalColumns,
    Read,
    ReadMode,
    Storage,
    check_effective,
    checked_asset,
    checked_storage,
)
from lakechime_dagster.triggers.triggers import LevelSpec, PartitionCondition, Trigger


class RefreshMode(StrEnum):
    """How a computed table is kept equal to its definition.

    ROWS computes the rows of the range only (append, or merge by key); AFFECTED_KEYS recomputes the
    groups that the range touched; PARTITIONS the partitions that it touched, replacing them; FULL
    everything.
    """

    ROWS = "rows"
    AFFECTED_KEYS = "affected_keys"
    PARTITIONS = "partitions"
    FULL = "full"


class DeclaredTable:
    """What every declared table offers to those that read it or wait for it, and to those that show
    and store it.

    `storage` and `asset` are checked and frozen at construction.
    """

    name: str
    storage: Storage
    asset: Asset
    kind: ClassVar[str]
    # the fields of `storage` and `asset` that have no effect for this kind of table
    unused: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        storage = checked_storage(self.name, self.storage)
        asset = checked_asset(self.name, self.asset, storage)
        check_effective(self.name, self.kind, storage, self.unused)
        check_effective(self.name, self.kind, asset, self.unused)
        object.__setattr__(self, "storage", storage)
        object.__setattr__(self, "asset", asset)

    @property
    def levels(self) -> PartitionLevels:
        """The typed partition levels, outermost first; none for an unpartitioned table."""
        assert isinstance(self.storage.partitioned_by, PartitionLevels)  # since construction
        return self.storage.partitioned_by

    @property
    def location(self) -> str | None:
        """The declared path or URL; None is the warehouse's own."""
        return self.storage.location

    @property
    def format(self) -> TableFormat:
        """The table format."""
        return TableFormat(self.storage.format or TableFormat.DELTA)

    @property
    def maintenance(self) -> Maintenance | None:
        """How its files are kept; None is not at all."""
        return self.storage.maintenance

    @property
    def write_as(self) -> Account | None:
        """The account that writes it; None is that of the driver's process."""
        return self.storage.write_as

    @property
    def owner(self) -> str | None:
        """An e-mail address or `team:name`."""
        return self.asset.owner

    @property
    def description(self) -> str:
        """The description of its asset."""
        return self.asset.description or ""

    @property
    def group(self) -> str | None:
        """The declared asset group."""
        return self.asset.group

    @property
    def kinds(self) -> tuple[str, ...]:
        """The declared kinds."""
        return tuple(self.asset.kinds)

    @property
    def fresh_within(self) -> dt.timedelta | None:
        """The age of its newest data from which on it is stale."""
        return self.asset.fresh_within

    @property
    def personal(self) -> PersonalColumns:
        """The columns that hold personal data."""
        return self.asset.columns or {}

    @property
    def public(self) -> bool:
        """Whether it is for everybody."""
        return self.asset.public

    @property
    def dagster(self) -> Passthrough:
        """Further arguments of its asset."""
        return self.asset.dagster or {}

    def changes(self, *, rejoin: NamedTable | str | None = None, on: Iterable[str] = ()) -> Read:
        """The rows that changed, and with `rejoin` those whose partner, by the columns `on`,
        changed.
        """
        columns = checked_columns(self.name, "changes(on=)", on)
        other = (
            rejoin
            if rejoin is None or isinstance(rejoin, str)
            else table_of_lake(self.name, "changes(rejoin=)", rejoin)
        )
        if (other is None) != (not columns):
            remedy = (
                "needs on=[columns that both tables have]"
                if other
                else "joins nothing; give rejoin=table too"
            )
            raise DeclarationError(self.name, "changes(rejoin=, on=)", remedy)
        if other == self.name:
            raise DeclarationError(
                self.name, "changes(rejoin=)", "is the table itself; rejoin another one"
            )
        return Read(table=self.name, mode=ReadMode.CHANGES, rejoin=other, on=columns)

    def snapshot(self, *, on_change: str | None = None) -> Read:
        """The whole table at a pinned snapshot; with `on_change="ignore"` its change alone changes
        nothing.
        """
        try:
            meaning = None if on_change is None else OnChange(on_change)
        except ValueError:
            raise DeclarationError(
                self.name,
                "snapshot(on_change=)",
                f"{shown(on_change)} is not {' or '.join(repr(str(choice)) for choice in OnChange)}",
            ) from None
        return Read(table=self.name, mode=ReadMode.SNAPSHOT, on_change=meaning)

    def partitions(self, **levels: LevelSpec) -> PartitionCondition:
        """The partitions that a partition trigger waits for: per level a literal, a tick, or
        several (all must be there).
        """
        if not self.levels:
            raise DeclarationError(
                self.name,
                "partitions",
                "is not partitioned; declare partitioned_by=, or use a SnapshotTrigger",
            )
        return PartitionCondition.of(self.name, levels, self.levels)


@dataclass(frozen=True, kw_only=True)
class WrittenTable(DeclaredTable):
    """What the declarations of all tables that the lake writes share."""

    name: str
    storage: Storage = Storage()
    asset: Asset = Asset()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.format is TableFormat.HIVE:
            self._check_hive()

    def _check_hive(self) -> None:
        """Refuse a Hive table, of which whole partitions alone are replaced."""
        raise DeclarationError(
            self.name, "format", "is that of computed tables; name delta or iceberg"
        )


@dataclass(frozen=True)
class SourceTable(DeclaredTable):
    """A table that others write.

    Attributes:
        name: Of dotted parts, such as `bronze.orders`, which are also its asset key.
        storage: Its partitions, location and format.
        asset: What its asset shows. With `fresh_within` it is stale when its newest event is older.
    """

    name: str
    storage: Storage = field(default=Storage(), kw_only=True)
    asset: Asset = field(default=Asset(), kw_only=True)
    kind: ClassVar[str] = "a table that is written externally"
    unused: ClassVar[tuple[str, ...]] = (
        "write_mode",
        "cluster_by",
        "maintenance",
        "write_as",
        "readers",
        "expect",
        "watermark",
    )

    def __post_init__(self) -> None:
        checked_table_name(self.name, "SourceTable", MAX_TABLE_NAME)
        super().__post_init__()
        if self.fresh_within is not None and self.fresh_within < dt.timedelta(minutes=1):
            remedy = (
                f"{shown(self.fresh_within)} is less than a minute, the least that Dagster watches "
                f"a source by"
            )
            raise DeclarationError(self.name, "fresh_within", remedy)


@dataclass(frozen=True, kw_only=True)
class Injection:
    """A parameter of a table's function that is not an input: `context`, a config, or a resource by
    its annotation.
    """

    name: str
    annotation: Any = field(default=None, hash=False)


@dataclass(frozen=True, kw_only=True)
class LakeTable(WrittenTable):
    """A table that this lake computes, by a Python function over DataFrames or by Spark SQL.

    `reads` maps each input's name in the function or the SQL to how it is read. `key_columns` are,
    for `affected_keys`, per table read as changes and per key, the columns of that table that give
    the key: one for each that the function's result, or the key's term in the SQL, mentions.
    Calling the table calls its function.
    """

    keys: tuple[str, ...] = ()
    refresh: RefreshMode = RefreshMode.ROWS
    reads: Mapping[str, Read] = field(default_factory=dict, hash=False)
    compute: Callable[..., Any] | None = None
    sql: str | None = None
    key_columns: Mapping[str, Mapping[str, Mapping[str, str]]] = field(
        default_factory=dict, hash=False
    )
    injected: tuple[Injection, ...] = ()
    trigger: Trigger | None = None
    kind: ClassVar[str] = "a computed table"
    unused: ClassVar[tuple[str, ...]] = ("cluster_by", "readers")

    def __post_init__(self) -> None:
        checked_table_name(self.name, "table")
        object.__setattr__(self, "keys", checked_columns(self.name, "keys", self.keys))
        object.__setattr__(self, "refresh", checked_refresh(self.name, self.refresh))
        for name in ("reads", "key_columns"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        super().__post_init__()
        if self.format is not TableFormat.DELTA and self.maintenance:
            problem = f"has no effect on a table of {self.format.title()}; leave it out"
            raise DeclarationError(self.name, "maintenance", problem)
        if self.fresh_within is not None and self.watermark is None:
            raise DeclarationError(
                self.name,
                "fresh_within",
                "is measured by the watermark; give watermark=, the event-time column, too",
            )

    def _check_hive(self) -> None:
        if self.refresh not in (RefreshMode.PARTITIONS, RefreshMode.FULL):
            raise DeclarationError(
                self.name,
                "refresh",
                f"is {self.refresh}, and of a Hive table only whole partitions are replaced; use "
                f"partitions or full, or the format delta or iceberg",
            )

    @property
    def description(self) -> str:
        """As declared; by default the docstring of its function, or the leading comment of its
        SQL.
        """
        if self.asset.description is not None:
            return self.asset.description
        return (
            (inspect.getdoc(self.compute) or "") if self.sql is None else _leading_comment(self.sql)
        )

    @property
    def expect(self) -> Mapping[str, str]:
        """The SQL conditions that each row must meet, by the names of the constraints."""
        return self.asset.expect or {}

    @property
    def watermark(self) -> str | None:
        """The event-time column."""
        return self.asset.watermark

    @property
    def inputs(self) -> tuple[str, ...]:
        """The tables it reads, rejoined ones included, each once, in the order of the
        declaration.
        """
        named = [
            name
            for read in self.reads.values()
            for name in (read.table, read.rejoin)
            if name is not None
        ]
        return tuple(dict.fromkeys(named))

    @property
    def __name__(self) -> str:
        return getattr(self.compute, "__name__", self.name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the decorated function returns for these DataFrames."""
        if self.compute is None:
            raise DeclarationError(
                self.name, "call", "is written in SQL; give its text, `.sql`, to spark.sql()"
            )
        return self.compute(*args, **kwargs)


def code_digest(table: LakeTable) -> str:
    """A digest of what a table is computed by: its `code_version` if it declares one, else its SQL,
    else its function's own source.

    Comments, docstrings, layout and decorators do not count, nor does what the function calls or
    keeps of where it was made.
    """
    version = table.dagster.get("code_version")
    if version is not None:
        text = f"code_version {version}"
    elif table.sql is not None:
        from lakechime_dagster.tables.sql import normalized  # which has the SQL parser

        text = normalized(table.sql)
    else:
        text = "" if table.compute is None else _source(table.compute)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16] if text else ""


def _source(compute: Callable[..., Any]) -> str:
    function = inspect.unwrap(compute.func if isinstance(compute, functools.partial) else compute)
    try:
        source = textwrap.dedent(
            inspect.getsource(function if inspect.isroutine(function) else type(function))
        )
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
        raise DeclarationError(
            table, "refresh", f"{shown(value)} is none of {', '.join(RefreshMode)}"
        ) from None


def _leading_comment(sql: str) -> str:
    comments = takewhile(
        lambda line: line.startswith("--"), map(str.strip, sql.strip().splitlines())
    )
    return "\n".join(line.removeprefix("--").strip() for line in comments)
