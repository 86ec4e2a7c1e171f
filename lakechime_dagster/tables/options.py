"""Options that all declared tables share: storage, asset, personal columns."""

import datetime as dt
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, TypeVar

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.events import TableFormat
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.errors import DeclarationError, keep_or_raise, needs, shown
from lakechime_dagster.tables.databases import checked_readers
from lakechime_dagster.tables.maintenance import Maintenance, checked_maintenance
from lakechime_dagster.tables.names import (
    Account,
    checked_account,
    checked_columns,
    checked_levels,
    checked_owner,
    checked_word,
    folded,
)

CATEGORY = re.compile(r"[a-z][a-z0-9_]{0,39}", re.ASCII)
COLUMN = re.compile(r"[^:/$]+(:\$(\.[^.\[\]\s]+|\[\*?\])+)?")
PATH = re.compile(r"(/[^/]+)+")


@dataclass(frozen=True)
class Personal:
    """That a column holds personal data of a category: a word such as `email`, which separates a
    person's values of several kinds.
    """

    category: str
    problem: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.category, str) or not CATEGORY.fullmatch(self.category):
            problem = (
                f"{shown(self.category)} is no word of small letters, digits and _, such as "
                f"'email'; write personal('email')"
            )
            keep_or_raise(self, DeclarationError("personal()", "category", problem))


def personal(category: str) -> Personal:
    """The tag of a column with personal data of a category."""
    return Personal(category)


PersonalColumns = Mapping[str, Personal]


def column_of(name: str) -> str:
    """The column of a name that may lead on into a JSON text, `payload:$.user.email`, or into a
    struct, `user.email`.
    """
    return name.partition(":")[0].partition(".")[0]


def checked_personal(
    table: str, value: object, *, levels: Iterable[str] = (), known: Collection[str] | None = None
) -> PersonalColumns:
    """Personal columns by name, frozen.

    Args:
        table: Named in the error.
        value: A map of column names to `personal(…)`. Behind a name, `.field` leads into a struct,
            `:$.path` into a JSON text.
        levels: The partition levels, which are in names of folders and in each entry of the log.
        known: The columns that there are, where that is known.

    Raises:
        DeclarationError: naming the column and the remedy.
    """
    if not isinstance(value, Mapping):
        raise DeclarationError(
            table,
            "columns",
            f'{shown(value)} is no map of columns, such as {{"email": personal("email")}}',
        )
    checked_columns(table, "columns", value.keys())
    for name, tag in value.items():
        if not isinstance(tag, Personal):
            raise DeclarationError(
                table, "columns", f'{shown(tag)} of {shown(name)} is no personal("email")'
            )
        if tag.problem:
            raise DeclarationError(table, "columns", f"{shown(name)}: {tag.problem}")
        if not COLUMN.fullmatch(name):
            problem = (
                f"{shown(name)} is no column; write such as 'email', 'user.email' within a struct, "
                f"'payload:$.user.email' within JSON"
            )
            raise DeclarationError(table, "columns", problem)
        if folded(column_of(name)) in {folded(level) for level in levels}:
            problem = (
                f"{name!r} is a partition level, whose values stand in names of folders; partition "
                f"by another column"
            )
            raise DeclarationError(table, "columns", problem)
        if known is not None and folded(column_of(name)) not in {folded(one) for one in known}:
            raise DeclarationError(
                table, "columns", f"{name!r} is no column of it; it has {', '.join(known)}"
            )
    return MappingProxyType(dict(value))


def checked_personal_paths(group: str, value: object) -> PersonalColumns:
    """Personal values of events by patterns of their paths, frozen: `{"/user/email":
    personal("email")}`.

    Raises:
        DeclarationError: naming the path and the remedy.
    """
    if not isinstance(value, Mapping):
        raise DeclarationError(
            group,
            "columns",
            f'{shown(value)} is no map of paths, such as {{"/user/email": personal("email")}}',
        )
    for path, tag in value.items():
        if not isinstance(path, str) or not PATH.fullmatch(path):
            raise DeclarationError(
                group,
                "columns",
                f"{shown(path)} is no path; write such as '/user/email' or '/items[]/email'",
            )
        if not isinstance(tag, Personal):
            raise DeclarationError(
                group, "columns", f'{shown(tag)} of {shown(path)} is no personal("email")'
            )
        if tag.problem:
            raise DeclarationError(group, "columns", f"{shown(path)}: {tag.problem}")
    return MappingProxyType(dict(value))


def check_unlisted(
    table: str, field: str, names: Iterable[str], tagged: PersonalColumns, why: str
) -> None:
    """Refuse personal columns where their values, or bounds of them, would be written outside of
    the rows.
    """
    columns = {folded(column_of(name)) for name in tagged}
    for name in names:
        if folded(name) in columns:
            raise DeclarationError(table, field, f"names {name!r}, which is personal: {why}")


def check_public(table: str, is_public: object, tagged: PersonalColumns) -> None:
    """Refuse a table for everybody that has personal columns."""
    if not isinstance(is_public, bool):
        raise DeclarationError(table, "public", f"{shown(is_public)} is neither True nor False")
    if is_public and tagged:
        problem = (
            f"is for everybody, and {next(iter(tagged))!r} is personal; leave the column out of "
            f"the table, or public=True"
        )
        raise DeclarationError(table, "public", problem)


Passthrough = Mapping[str, Any]  # what `@dg.asset` takes; the foreign edge


class ReadMode(StrEnum):
    """CHANGES: what the execution's range touched; SNAPSHOT: everything at the end of the range."""

    CHANGES = "changes"
    SNAPSHOT = "snapshot"


class OnChange(StrEnum):
    """What a change of an input means that is read whole: IGNORE leaves the rows written before as
    they are.
    """

    IGNORE = "ignore"


@dataclass(frozen=True, kw_only=True)
class Read:
    """One input of a computed table.

    A read of changes with `rejoin` adds the rows whose partner in the rejoined table changed, found
    by the columns `on` that both tables have. `on_change` is what a change of a table means that is
    read as a snapshot.
    """

    table: str
    mode: ReadMode
    rejoin: str | None = None
    on: tuple[str, ...] = ()
    on_change: OnChange | None = None

    @property
    def is_changing(self) -> bool:
        """Whether a change of the table is read as rows."""
        return self.mode is ReadMode.CHANGES

    def pinned(self) -> "Read":
        """The same table, read whole, a change of it meaning nothing by itself."""
        return replace(self, mode=ReadMode.SNAPSHOT, rejoin=None, on=(), on_change=OnChange.IGNORE)


LEAVE_OUT, BY_PARAMETER = "leave it out", "annotate a parameter of the function with the resource"
# arguments of `@dg.asset` without which a declared table would not run, with what to do instead
ENGINE_OWNED = {
    **dict.fromkeys(
        (
            "name",
            "key",
            "key_prefix",
            "deps",
            "ins",
            "partitions_def",
            "backfill_policy",
            "compute_fn",
        ),
        LEAVE_OUT,
    ),
    **dict.fromkeys(("config_schema", "dagster_type", "output_required", "is_virtual"), LEAVE_OUT),
    **dict.fromkeys(("required_resource_keys", "resource_defs"), BY_PARAMETER),
    "check_specs": "write a check of your own with @dg.asset_check(asset=…)",
}


class WriteMode(StrEnum):
    """How changes of rows are written in an Iceberg table, named as in Iceberg.

    With COPY_ON_WRITE each file that holds a changed row is written again. With MERGE_ON_READ it
    stays, and files of deletes say which of its rows are gone: small changes are cheap, reads are
    not until the files are compacted.
    """

    COPY_ON_WRITE = "copy-on-write"
    MERGE_ON_READ = "merge-on-read"


@dataclass(frozen=True, kw_only=True)
class Storage:
    """How and where the files of a table are stored. Several tables may share one.

    A declaration checks the values, and refuses those that have no effect for its kind of table.

    Attributes:
        partitioned_by: The type of each partition column, outermost first, such as `{"flight_date":
            "date", "hour": "int"}`; unpartitioned by default.
        location: A path or URL; `<warehouse>/<schema>/<table>` by default. An Iceberg table has
            none: it is in the catalog of the setting `LAKECHIME_ICEBERG_CATALOG`. A Hive table is
            where the metastore has it; the location is for one that is still to be made.
        format: `delta`, `iceberg` or `hive`; by default `delta`, of a computed table the
            `table_format` of its `Lake`.
        write_mode: How changes of rows are written in an Iceberg table: `copy-on-write` or
            `merge-on-read`, which writes files of deletes beside files that stay. By default as the
            table's properties say (`write.merge.mode`), which is `copy-on-write` of a new table.
        cluster_by: Columns by whose values rows are clustered (Delta's liquid clustering), of CDC
            tables.
        maintenance: How files are compacted and removed, of tables that this lake writes; by
            default nothing does.
        write_as: The account that writes the files, of tables that this lake writes; that of the
            driver's process by default.
        readers: Engines other than Spark that read a CDC table, such as `polars`, by which Delta's
            table features are chosen.
    """

    partitioned_by: Mapping[str, str] | PartitionLevels | None = field(default=None, hash=False)
    location: str | None = None
    format: str | TableFormat | None = None
    write_mode: str | WriteMode | None = None
    cluster_by: Iterable[str] = ()
    maintenance: Maintenance | None = None
    write_as: Account | None = None
    readers: Iterable[str] = ()


@dataclass(frozen=True, kw_only=True)
class Asset:
    """What the Dagster asset of a table shows and checks. Several tables may share one.

    A declaration checks the values, and refuses those that have no effect for its kind of table.

    Attributes:
        owner: An e-mail address or `team:name`.
        description: By default the docstring of a `spark_table`'s function, or the leading comment
            of a `sql_table`'s text.
        group: Dagster's asset group; the first part of the table's name by default.
        kinds: Dagster's kinds, in place of those of its format and engine.
        expect: SQL conditions that each row of a computed table must meet, by the names of the
            constraints. A row that does not is quarantined.
        watermark: The event-time column of a computed table.
        fresh_within: The table is stale when its newest data are older: of a source by its newest
            event, of a computed table by the `watermark`. At least a minute for a source.
        columns: The columns that hold personal data, such as `{"email": personal("email")}`. They
            have no statistics in the table's log.
        public: The table is for everybody, and may hold no personal data.
        dagster: Further arguments of `dg.asset` (of `dg.AssetSpec` for a source). Its metadata are
            added to the declaration's.
    """

    owner: str | None = None
    description: str | None = None
    group: str | None = None
    kinds: Iterable[str] = ()
    expect: Mapping[str, str] | None = field(default=None, hash=False)
    watermark: str | None = None
    fresh_within: dt.timedelta | None = None
    columns: PersonalColumns | None = field(default=None, hash=False)
    public: bool = False
    dagster: Passthrough | None = field(default=None, hash=False)


Options = TypeVar("Options", Storage, Asset)


def checked_storage(table: str, value: object) -> Storage:
    """The storage of a table with its values checked and frozen.

    Raises:
        DeclarationError: naming the table, the field and the remedy.
    """
    if not isinstance(value, Storage):
        raise DeclarationError(table, "storage", f"{shown(value)} is no Storage(…)")
    location = value.location
    if location is not None and (not isinstance(location, str) or not location.strip()):
        raise DeclarationError(
            table,
            "location",
            f"{shown(location)} is not a path or URL; leave it out for the warehouse's own",
        )
    table_format = None if value.format is None else checked_format(table, "format", value.format)
    if table_format not in (None, TableFormat.DELTA):
        _check_other_format(table, value, table_format)
    return replace(
        value,
        partitioned_by=checked_levels(table, value.partitioned_by),
        format=table_format,
        write_mode=_write_mode(table, value.write_mode, table_format),
        cluster_by=checked_columns(table, "cluster_by", value.cluster_by),
        maintenance=checked_maintenance(table, value.maintenance),
        write_as=checked_account(table, value.write_as, location),
        readers=checked_readers(table, value.readers),
    )


# fields of `Storage` without effect on a table of another format, with the reason
OF_DELTA = {
    "cluster_by": "is Delta's clustering; a table of {} has partitions",
    "readers": "chooses Delta's table features, which a table of {} has none of",
    "write_as": "has no effect on a table of {}, whose catalog has the credentials",
}


def _check_other_format(table: str, value: Storage, table_format: TableFormat) -> None:
    if table_format is TableFormat.ICEBERG and value.location:
        where = "is that of the Iceberg catalog (LAKECHIME_ICEBERG_CATALOG); leave it out"
        raise DeclarationError(table, "location", where)
    for name, why in OF_DELTA.items():
        if getattr(value, name):
            raise DeclarationError(table, name, f"{why.format(table_format.title())}; leave it out")


def _write_mode(table: str, value: object, table_format: TableFormat | None) -> WriteMode | None:
    if value is None:
        return None
    if table_format is not TableFormat.ICEBERG:
        raise DeclarationError(
            table,
            "write_mode",
            f"{shown(value)} is for format='iceberg'; name that too, or leave it out",
        )
    try:
        return WriteMode(str(value))
    except ValueError:
        raise DeclarationError(
            table, "write_mode", f"{shown(value)} is neither {' nor '.join(WriteMode)}"
        ) from None


def checked_asset(table: str, value: object, storage: Storage) -> Asset:
    """What the asset of a table of this (checked) storage shows and checks, with its values checked
    and frozen.

    Raises:
        DeclarationError: naming the table, the field and the remedy.
    """
    if not isinstance(value, Asset):
        raise DeclarationError(table, "asset", f"{shown(value)} is no Asset(…)")
    checked_owner(table, value.owner)
    checked_word(table, "group", value.group)
    if value.description is not None and not isinstance(value.description, str):
        raise DeclarationError(table, "description", f"{shown(value.description)} is not text")
    within = value.fresh_within
    if within is not None and not (isinstance(within, dt.timedelta) and within > dt.timedelta(0)):
        raise DeclarationError(
            table, "fresh_within", f"{shown(within)} is not a positive timedelta"
        )
    levels = checked_levels(table, storage.partitioned_by).names
    personal = checked_personal(
        table, {} if value.columns is None else value.columns, levels=levels
    )
    check_public(table, value.public, personal)
    if value.watermark is not None:
        named = checked_columns(table, "watermark", [value.watermark])
        check_unlisted(
            table,
            "watermark",
            named,
            personal,
            "its newest value stands in the log; name another time",
        )
    clustered = tuple(storage.cluster_by)
    check_unlisted(
        table,
        "cluster_by",
        clustered,
        personal,
        "rows lie together by statistics, which it has none of; leave it out",
    )
    return replace(
        value,
        kinds=checked_columns(table, "kinds", value.kinds),
        expect=_checked_expect(table, value.expect or {}),
        columns=personal,
        dagster=_checked_dagster(table, {} if value.dagster is None else value.dagster),
    )


def check_effective(table: str, kind: str, value: Options, unused: Iterable[str]) -> None:
    """Refuse values of (checked) options that have no effect for a kind of table.

    Raises:
        DeclarationError: naming the table, the field and the remedy.
    """
    for one in fields(value):
        given = getattr(value, one.name)
        if one.name in unused and given and given != one.default:
            raise DeclarationError(
                table,
                one.name,
                f"{shown(given)} has no effect for {kind}; leave it out of "
                f"{type(value).__name__}(…)",
            )


def checked_format(table: str, field: str, value: object) -> TableFormat:
    """A table format by its name.

    Raises:
        DeclarationError: naming those that there are.
    """
    try:
        return TableFormat(str(value).upper())
    except ValueError:
        raise DeclarationError(
            table,
            field,
            f"{shown(value)} is none of {', '.join(kind.lower() for kind in TableFormat)}",
        ) from None


def _checked_dagster(table: str, value: object) -> Passthrough:
    if not isinstance(value, Mapping):
        raise DeclarationError(table, "dagster", f"{shown(value)} is not a map of arguments")
    if not isinstance(value.get("metadata", {}), Mapping):
        raise DeclarationError(
            table,
            "dagster",
            f"the metadata {shown(value['metadata'])} are no map of names to values",
        )
    owned = [argument for argument in value if argument in ENGINE_OWNED]
    if owned:
        raise DeclarationError(
            table,
            "dagster",
            f"{shown(owned[0])} is set from the declaration itself; {ENGINE_OWNED[owned[0]]}",
        )
    return MappingProxyType(dict(value))


def _checked_expect(table: str, expect: object) -> Mapping[str, str]:
    if not isinstance(expect, Mapping):
        raise DeclarationError(
            table,
            "expect",
            f'{shown(expect)} is no map of constraints, such as {{"positive": "amount > 0"}}',
        )
    if not expect:
        return MappingProxyType({})
    with needs("a constraint in expect=", extra="spark"):
        from sqlglot import exp
        from sqlglot.errors import SqlglotError

        from lakechime_dagster.tables.incremental import is_aggregate
        from lakechime_dagster.tables.sql import parsed
    for constraint, condition in expect.items():
        field = f"expect[{constraint!r}]"
        if not isinstance(constraint, str) or not constraint.strip():
            raise DeclarationError(
                table, "expect", f"{shown(constraint)} is not the name of a constraint"
            )
        if not isinstance(condition, str) or not condition.strip():
            raise DeclarationError(table, field, f"{shown(condition)} is not a SQL condition")
        try:
            [understood] = parsed(condition, into=exp.Condition)
        except SqlglotError:
            raise DeclarationError(
                table, field, f"{shown(condition)} is not a SQL condition"
            ) from None
        if understood.find(exp.Query, exp.Window) or any(
            is_aggregate(node) for node in understood.walk()
        ):
            raise DeclarationError(
                table,
                field,
                f"{shown(condition)} looks at more than one row; a constraint is checked row by row",
            )
    return MappingProxyType(dict(expect))
