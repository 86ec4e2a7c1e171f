"""The inputs of a computed table: how each is read, whether that fits the refresh mode, and what a change of each means."""

from collections.abc import Iterable, Mapping, Sequence

from lakechime_dagster.dce.partition import PartitionLevels
from lakechime_dagster.errors import DeclarationError, shown
from lakechime_dagster.lake.reads import OnChange, Read, ReadMode
from lakechime_dagster.lake.tables import RefreshMode
from lakechime_dagster.triggers import PartitionTrigger, SnapshotTrigger
from lakechime_dagster.triggers.model import Trigger


def checked_trigger(name: str, trigger: object) -> Trigger | None:
    """One of the two triggers, or None for a table that runs by hand only."""
    if trigger is not None and not isinstance(trigger, PartitionTrigger | SnapshotTrigger):
        raise DeclarationError(name, "trigger", f"{shown(trigger)} is neither a PartitionTrigger nor a SnapshotTrigger")
    return trigger


def checked_reads(name: str, reads: object) -> dict[str, Read]:
    """The reads of a Python table: parameter name → how its table is read."""
    if not isinstance(reads, Mapping) or not reads:
        raise DeclarationError(name, "reads", 'names no input; write {"orders": orders.changes()}')
    for alias, read in reads.items():
        if not isinstance(alias, str) or not alias.isidentifier():
            raise DeclarationError(name, "reads", f"{shown(alias)} is not a parameter name")
        if not isinstance(read, Read):
            raise DeclarationError(name, f"reads[{alias!r}]", f"{shown(read)} does not say how; write table.changes() or table.snapshot()")
        if read.table == name:
            raise DeclarationError(name, f"reads[{alias!r}]", "reads the table itself; a table cannot wait for its own changes")
    return dict(reads)


def sql_reads(name: str, tables: tuple[str, ...], said: Sequence[Read], trigger: Trigger | None) -> dict[str, Read]:
    """The reads of a SQL table: what wakes the trigger as changes, the rest whole, unless said otherwise."""
    if not tables:
        raise DeclarationError(name, "sql", "reads no table; a table without inputs never changes")
    if name in tables:
        raise DeclarationError(name, "sql", "reads the table itself; a table cannot wait for its own changes")
    overrides: dict[str, Read] = {}
    for read in said:
        if not isinstance(read, Read):
            raise DeclarationError(name, "reads", f"{shown(read)} does not say how; write table.changes() or table.snapshot()")
        if read.table not in tables:
            raise DeclarationError(name, "reads", f"{read.table} is not in the SQL, which reads {', '.join(tables)}")
        if read.rejoin is not None:
            remedy = "SQL says itself what it joins; use affected_keys or full"
            raise DeclarationError(name, "reads", f"changes(rejoin={read.rejoin!r}): {remedy}")
        overrides[read.table] = read
    named = trigger.tables if trigger is not None else ()
    waking = [table for table in tables if not named or table in named]
    default = {table: Read(table=table, mode=ReadMode.CHANGES if table in waking else ReadMode.SNAPSHOT) for table in tables}
    return {**default, **overrides}


def check_modes(
    name: str, mode: RefreshMode, keys: tuple[str, ...], reads: Iterable[Read], levels: PartitionLevels, is_sql: bool = False
) -> None:
    """What a refresh mode needs of keys, partitions and reads."""
    several = list(reads)
    changing = [read.table for read in several if read.is_changing]
    field = f"refresh={str(mode)!r}"
    if mode is not RefreshMode.FULL and not changing:
        raise DeclarationError(name, field, "reads no input as changes; read one so, or use refresh='full'")
    if mode is RefreshMode.AFFECTED_KEYS and not keys:
        raise DeclarationError(name, "keys", "is empty; refresh='affected_keys' needs the columns that name a group")
    if mode is RefreshMode.PARTITIONS and not levels:
        raise DeclarationError(name, "partitioned_by", "is empty; refresh='partitions' needs the columns that name a partition")
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
            "read one as changes(rejoin=, on=) and the other as snapshot(), or use another refresh mode",
        )
    for read in several:
        _check_rejoin(name, mode, keys, read, several)


def _check_rejoin(name: str, mode: RefreshMode, keys: tuple[str, ...], read: Read, reads: list[Read]) -> None:
    if read.rejoin is None:
        return
    field = f"changes(rejoin={read.rejoin!r})"
    if mode is not RefreshMode.ROWS:
        raise DeclarationError(name, field, f"is for refresh='rows'; with {str(mode)!r} read {read.rejoin} as changes()")
    if not keys:
        raise DeclarationError(name, "keys", f"is empty; rows that {field} gives again must replace their former selves by key")
    if not any(other.table == read.rejoin and not other.is_changing for other in reads):
        raise DeclarationError(name, field, f"needs {read.rejoin} in reads= too, as snapshot()")


def woken_by(name: str, mode: RefreshMode, reads: Iterable[Read], trigger: Trigger | None) -> Trigger | None:
    """The trigger, on the inputs if it names no table; each table that wakes it must mean something."""
    if trigger is None:
        return None
    if mode is RefreshMode.ROWS and isinstance(trigger, PartitionTrigger):
        problem = "would read the whole of its inputs for each key of its partition trigger"
        raise DeclarationError(name, "refresh='rows'", f"{problem}; use refresh='partitions', or a SnapshotTrigger")
    several = list(reads)
    rejoined = {read.rejoin for read in several}
    changing = {read.table for read in several if read.is_changing or read.table in rejoined}
    ignored = {read.table for read in several if read.on_change is OnChange.IGNORE}
    inputs = dict.fromkeys(read.table for read in several)
    means_something = set(inputs) if mode is RefreshMode.FULL else changing
    if isinstance(trigger, SnapshotTrigger):
        _check_only_matching(name, mode, several, trigger)
        unread = [table for table in trigger.tables if table not in inputs]
        if unread:
            raise DeclarationError(name, "trigger", f"waits for {unread[0]}, which is not read; read it, or leave it out")
        trigger = trigger.on([table for table in inputs if table in changing or table not in ignored])
        if not trigger.tables:
            remedy = "nothing wakes it, as the changes of all its tables are ignored; leave out on_change='ignore' of one, or the trigger"
            raise DeclarationError(name, "trigger", remedy)
    silent = [table for table in trigger.tables if table in inputs and table not in means_something | ignored]
    if silent:
        table = silent[0]
        raise DeclarationError(
            name,
            "trigger",
            f"a change of {table} wakes it, but {table} is read as a snapshot: say what its change means by changes(), "
            f"changes(rejoin={table}, on=…) of another input, or snapshot(on_change='ignore')",
        )
    return trigger


def _check_only_matching(name: str, mode: RefreshMode, reads: Iterable[Read], trigger: SnapshotTrigger) -> None:
    """Rows of some commits alone can be had where each row of the target comes from rows of one commit."""
    if not trigger.only_matching:
        return
    field = "trigger.only_matching"
    if mode is not RefreshMode.ROWS:
        raise DeclarationError(name, field, f"is for refresh='rows'; {str(mode)!r} reads rows of other commits too")
    rejoining = next((read for read in reads if read.rejoin is not None), None)
    if rejoining is not None:
        raise DeclarationError(name, field, f"cannot go with changes(rejoin={rejoining.rejoin!r}), which reads rows of other commits too")
