"""`spark_table` and `sql_table`: declare a computed table."""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.errors import DeclarationError, needs, shown
from lakechime_dagster.tables.names import checked_columns, checked_levels, checked_table_name
from lakechime_dagster.tables.options import (
    Asset,
    OnChange,
    Read,
    ReadMode,
    Storage,
    checked_personal,
    checked_storage,
)
from lakechime_dagster.tables.tables import Injection, LakeTable, RefreshMode, checked_refresh
from lakechime_dagster.triggers.triggers import PartitionTrigger, SnapshotTrigger, Trigger

if TYPE_CHECKING:
    from sqlglot import exp


def checked_trigger(name: str, trigger: object) -> Trigger | None:
    """One of the two triggers, or None for a table that runs by hand only."""
    if trigger is not None and not isinstance(trigger, PartitionTrigger | SnapshotTrigger):
        raise DeclarationError(
            name, "trigger", f"{shown(trigger)} is neither a PartitionTrigger nor a SnapshotTrigger"
        )
    return trigger


def checked_reads(name: str, reads: object) -> dict[str, Read]:
    """The reads of a Python table: parameter name → how its table is read."""
    if not isinstance(reads, Mapping) or not reads:
        raise DeclarationError(name, "reads", 'names no input; write {"orders": orders.changes()}')
    for alias, read in reads.items():
        if not isinstance(alias, str) or not alias.isidentifier():
            raise DeclarationError(name, "reads", f"{shown(alias)} is not a parameter name")
        if not isinstance(read, Read):
            raise DeclarationError(
                name,
                f"reads[{alias!r}]",
                f"{shown(read)} is not a read; write table.changes() or table.snapshot()",
            )
        if read.table == name:
            raise DeclarationError(
                name,
                f"reads[{alias!r}]",
                "reads the table itself; a table cannot wait for its own changes",
            )
    return dict(reads)


def sql_reads(
    name: str, tables: tuple[str, ...], given: Sequence[Read], trigger: Trigger | None
) -> dict[str, Read]:
    """The reads of a SQL table: what wakes the trigger as changes, the rest whole, unless given
    otherwise.
    """
    if not tables:
        raise DeclarationError(name, "sql", "reads no table; a table without inputs never changes")
    if name in tables:
        raise DeclarationError(
            name, "sql", "reads the table itself; a table cannot wait for its own changes"
        )
    overrides: dict[str, Read] = {}
    for read in given:
        if not isinstance(read, Read):
            raise DeclarationError(
                name,
                "reads",
                f"{shown(read)} is not a read; write table.changes() or table.snapshot()",
            )
        if read.table not in tables:
            raise DeclarationError(
                name, "reads", f"{read.table} is not in the SQL, which reads {', '.join(tables)}"
            )
        if read.rejoin is not None:
            remedy = "SQL has its own joins; use affected_keys or full"
            raise DeclarationError(name, "reads", f"changes(rejoin={read.rejoin!r}): {remedy}")
        overrides[read.table] = read
    named = trigger.tables if trigger is not None else ()
    waking = [table for table in tables if not named or table in named]
    default = {
        table: Read(table=table, mode=ReadMode.CHANGES if table in waking else ReadMode.SNAPSHOT)
        for table in tables
    }
    return {**default, **overrides}


def check_modes(
    name: str,
    mode: RefreshMode,
    keys: tuple[str, ...],
    reads: Iterable[Read],
    levels: PartitionLevels,
    is_sql: bool = False,
) -> None:
    """What a refresh mode needs of keys, partitions and reads."""
    several = list(reads)
    changing = [read.table for read in several if read.is_changing]
    field = f"refresh={str(mode)!r}"
    if mode is not RefreshMode.FULL and not changing:
        raise DeclarationError(
            name, field, "reads no input as changes; read one so, or use refresh='full'"
        )
    if mode is RefreshMode.AFFECTED_KEYS and not keys:
        raise DeclarationError(
            name, "keys", "is empty; refresh='affected_keys' needs the columns that name a group"
        )
    if mode is RefreshMode.PARTITIONS and not levels:
        raise DeclarationError(
            name,
            "partitioned_by",
            "is empty; refresh='partitions' needs the columns that name a partition",
        )
    if mode is RefreshMode.PARTITIONS and keys and not set(levels.names) <= set(keys):
        lost = [column for column in levels.names if column not in keys]
        remedy = "add it, as one key must not stand in two partitions that are replaced apart"
        raise DeclarationError(name, "keys", f"lacks the partition column {lost[0]!r}; {remedy}")
    if mode is RefreshMode.ROWS and not is_sql and len(changing) > 1:
        both = " and ".join(changing)
        raise DeclarationError(
            name,
            field,
            f"reads {both} as changes, and a join of two changing inputs is not row by row; "
            "read one as changes(rejoin=, on=) and the other as snapshot(), or use another refresh "
            "mode",
        )
    for read in several:
        _check_rejoin(name, mode, keys, read, several)


def _check_rejoin(
    name: str, mode: RefreshMode, keys: tuple[str, ...], read: Read, reads: list[Read]
) -> None:
    if read.rejoin is None:
        return
    field = f"changes(rejoin={read.rejoin!r})"
    if mode is not RefreshMode.ROWS:
        raise DeclarationError(
            name,
            field,
            f"is for refresh='rows'; with {str(mode)!r} read {read.rejoin} as changes()",
        )
    if not keys:
        raise DeclarationError(
            name,
            "keys",
            f"is empty; rows that {field} gives again must replace their former selves by key",
        )
    if not any(other.table == read.rejoin and not other.is_changing for other in reads):
        raise DeclarationError(name, field, f"needs {read.rejoin} in reads= too, as snapshot()")


def woken_by(
    name: str, mode: RefreshMode, reads: Iterable[Read], trigger: Trigger | None
) -> Trigger | None:
    """The trigger, on the inputs if it names no table; each table that wakes it must mean
    something.
    """
    if trigger is None:
        return None
    if mode is RefreshMode.ROWS and isinstance(trigger, PartitionTrigger):
        problem = "would read the whole of its inputs for each key of its partition trigger"
        raise DeclarationError(
            name, "refresh='rows'", f"{problem}; use refresh='partitions', or a SnapshotTrigger"
        )
    several = list(reads)
    rejoined = {read.rejoin for read in several}
    changing = {read.table for read in several if read.is_changing or read.table in rejoined}
    ignored = {read.table for read in several if read.on_change is OnChange.IGNORE}
    inputs = dict.fromkeys(read.table for read in several)
    means_something = set(inputs) if mode is RefreshMode.FULL else changing
    if isinstance(trigger, SnapshotTrigger):
        unread = [table for table in trigger.tables if table not in inputs]
        if unread:
            raise DeclarationError(
                name,
                "trigger",
                f"waits for {unread[0]}, which is not read; read it, or leave it out",
            )
        trigger = trigger.on(
            [table for table in inputs if table in changing or table not in ignored]
        )
        if not trigger.tables:
            remedy = (
                "nothing wakes it, as the changes of all its tables are ignored; leave out "
                "on_change='ignore' of one, or the trigger"
            )
            raise DeclarationError(name, "trigger", remedy)
    silent = [
        table
        for table in trigger.tables
        if table in inputs and table not in means_something | ignored
    ]
    if silent:
        table = silent[0]
        raise DeclarationError(
            name,
            "trigger",
            f"a change of {table} wakes it, but {table} is read as a snapshot: declare what its "
            f"change means by changes(), "
            f"changes(rejoin={table}, on=…) of another input, or snapshot(on_change='ignore')",
        )
    return trigger


def spark_table(
    name: str,
    *,
    reads: Mapping[str, Read],
    keys: Iterable[str] = (),
    refresh: str | RefreshMode = RefreshMode.ROWS,
    trigger: Trigger | None = None,
    storage: Storage = Storage(),
    asset: Asset = Asset(),
) -> Callable[[Callable[..., Any]], LakeTable]:
    """Declare a table computed by the decorated function, which takes a DataFrame per name in
    `reads`.

    Further parameters of the function are injected: `context`, a config class, a resource by its
    annotation. One with a default gets it where no run computes the table, as when its plan is
    read; any other parameter keeps its default.

    Args:
        name: Of dotted parts, such as `silver.orders`, which are also its asset key.
        reads: For each parameter of the function `table.changes()` or `table.snapshot()`.
        keys: The columns that name a row. Without them refresh="rows" appends the rows of new
            commits, and a commit that changes or deletes rows makes it compute the whole.
        refresh: `rows`, `affected_keys`, `partitions` or `full`: what a change of the inputs
            computes again.
        trigger: What launches runs; one that names no tables waits for those in `reads`. None: only
            people and jobs do.
        storage: How and where its files are stored; in the warehouse as an unpartitioned Delta
            table by default.
        asset: What its asset shows and checks; the description is the function's docstring by
            default.

    Raises:
        DeclarationError: naming the table, the field and the remedy.
    """
    checked_table_name(name, "spark_table")
    files = checked_storage(name, storage)
    checked = checked_reads(name, reads)
    mode = checked_refresh(name, refresh)
    key_columns = checked_columns(name, "keys", keys)
    check_modes(
        name, mode, key_columns, checked.values(), checked_levels(name, files.partitioned_by)
    )
    woken = woken_by(name, mode, checked.values(), checked_trigger(name, trigger))
    by_key = {key: {key: key} for key in key_columns}
    changing = [read.table for read in checked.values() if read.is_changing]

    def declare(compute: Callable[..., Any]) -> LakeTable:
        table = LakeTable(
            name=name,
            storage=files,
            asset=asset,
            keys=key_columns,
            refresh=mode,
            reads=checked,
            compute=compute,
            key_columns=dict.fromkeys(changing, by_key)
            if mode is RefreshMode.AFFECTED_KEYS
            else {},
            injected=_injected(name, compute, checked),
            trigger=woken,
        )
        object.__setattr__(table, "__doc__", compute.__doc__)
        object.__setattr__(table, "__module__", compute.__module__)
        return table

    return declare


def sql_table(
    name: str,
    sql: str | Path,
    *,
    reads: Sequence[Read] = (),
    keys: Iterable[str] = (),
    refresh: str | RefreshMode = RefreshMode.FULL,
    trigger: Trigger | None = None,
    storage: Storage = Storage(),
    asset: Asset = Asset(),
) -> LakeTable:
    """Declare a table computed by one Spark SQL query.

    Spark runs the text as it is written. Its tables are the inputs. Where only Spark can parse the
    text, these are the names of two or more parts behind FROM and JOIN and those of the text in
    `reads`, and it is refreshed in full.

    Args:
        name: Of dotted parts, such as `gold.revenue`, which are also its asset key.
        sql: The text, or the `pathlib.Path` of a file with it, relative to the folder of the
            declaring module.
        reads: How single inputs are read, `table.changes()` or `table.snapshot()`. Otherwise those
            that wake the trigger (all, if it names none) are read as changes, the others whole.
        keys: The columns that name a row.
        refresh: `full`, `rows`, `affected_keys` or `partitions`: what a change of the inputs
            computes again.
        trigger: What launches runs; one that names no tables waits for all inputs. None: only
            people and jobs do.
        storage: How and where its files are stored; in the warehouse as an unpartitioned Delta
            table by default.
        asset: What its asset shows and checks; the description is the SQL's leading comment by
            default.

    Raises:
        DeclarationError: naming the table, the field and the remedy.
    """
    checked_table_name(name, "sql_table")
    text = _sql_text(name, sql, Path(sys._getframe(1).f_globals.get("__file__") or "."))
    with needs("a sql_table", extra="spark"):
        from lakechime_dagster.tables.incremental import (
            check_increment,
            check_partition_local,
            group_key_columns,
        )
        from lakechime_dagster.tables.sql import Unparsed, parse_query, tables_of, with_named
    files = checked_storage(name, storage)
    query = with_named(
        parse_query(name, text), text, [read.table for read in reads if isinstance(read, Read)]
    )
    mode = checked_refresh(name, refresh)
    key_columns = checked_columns(name, "keys", keys)
    levels = checked_levels(name, files.partitioned_by)
    if isinstance(query, Unparsed) and not query.tables:
        remedy = "name its tables, such as reads=[orders.snapshot()], if Spark knows more"
        raise DeclarationError(name, "sql", f"is not understood, {query.why}; {remedy}")
    checked = sql_reads(name, tables_of(query), reads, checked_trigger(name, trigger))
    check_modes(name, mode, key_columns, checked.values(), levels, is_sql=True)
    changing = [read.table for read in checked.values() if read.is_changing]
    selected, given_by = None, {}
    if not isinstance(query, Unparsed):
        selected = _selected(query)
        check_increment(name, query, mode, changing, key_columns)
        if mode is RefreshMode.PARTITIONS:
            check_partition_local(name, query, levels.names, changing)
        if mode is RefreshMode.AFFECTED_KEYS:
            given_by = group_key_columns(name, query, key_columns, changing)
    elif mode is not RefreshMode.FULL:
        raise DeclarationError(
            name,
            f"refresh={str(mode)!r}",
            f"cannot be checked, as the SQL is not understood: {query.why}; use full",
        )
    table = LakeTable(
        name=name,
        storage=files,
        asset=asset,
        keys=key_columns,
        refresh=mode,
        reads=checked,
        sql=text,
        key_columns=given_by,
        trigger=woken_by(name, mode, checked.values(), trigger),
    )
    checked_personal(name, table.personal, known=selected)
    return table


def _injected(
    name: str, compute: Callable[..., Any], reads: Mapping[str, Read]
) -> tuple[Injection, ...]:
    parameters = inspect.signature(compute).parameters
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    missing = [alias for alias in reads if alias not in parameters]
    if missing and not open_ended:
        there = ", ".join(parameters) or "none"
        raise DeclarationError(
            name,
            f"reads[{missing[0]!r}]",
            f"is no parameter of {compute.__name__}(); its parameters are {there}",
        )
    injected = []
    for parameter in parameters.values():
        if parameter.name in reads or parameter.kind in (
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        ):
            continue
        annotation = _annotation(compute, parameter)
        is_frame = "DataFrame" in (
            annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
        )
        is_given = parameter.name == "context" or _is_of_dagster(annotation)
        if not is_frame and not is_given and parameter.default is not parameter.empty:
            continue
        if is_frame or (annotation is None and parameter.name != "context"):
            raise DeclarationError(
                name,
                f"parameter {parameter.name!r}",
                f"is no input; reads= names {', '.join(reads)}",
            )
        injected.append(Injection(name=parameter.name, annotation=annotation))
    return tuple(injected)


def _annotation(compute: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """The annotation of a parameter, of one written as text what it names, where that is known;
    None for none.

    Of an optional one (`Mail | None`) it is the class, which is what Dagster is asked for.
    """
    if not isinstance(parameter.annotation, str):
        return (
            None if parameter.annotation is parameter.empty else _without_none(parameter.annotation)
        )
    written = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return _without_none(
            get_type_hints(written, getattr(compute, "__globals__", None), include_extras=True)[
                parameter.name
            ]
        )
    except (NameError, AttributeError, SyntaxError, TypeError):
        return parameter.annotation


def _without_none(annotation: Any) -> Any:
    is_union = get_origin(annotation) in (Union, UnionType)
    named = [one for one in get_args(annotation) if one is not NoneType]
    return named[0] if is_union and len(named) == 1 else annotation


def _is_of_dagster(annotation: Any) -> bool:
    """Whether it is a class of Dagster or made from one: a context, a config, a resource."""
    return any(
        base.__module__.partition(".")[0] == "dagster"
        for base in getattr(annotation, "__mro__", ())
    )


def _selected(query: "exp.Query") -> list[str] | None:
    """The columns that a query gives; None where it does not name them all."""
    return None if query.is_star or not all(query.named_selects) else query.named_selects


def _sql_text(name: str, sql: object, declared_in: Path) -> str:
    if isinstance(sql, str):
        return sql
    if not isinstance(sql, Path):
        raise DeclarationError(
            name,
            "sql",
            f"{shown(sql)} is neither the text of a query nor the Path of a file with one",
        )
    path = declared_in.parent / sql
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DeclarationError(
            name, "sql", f"{shown(str(path))} cannot be read ({type(error).__name__})"
        ) from None
