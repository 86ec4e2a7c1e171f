"""Names in declarations: tables, columns, groups, owners."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from lakechime_dagster.dce.events import TableFormat
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.errors import DeclarationError, InvalidValueError, shown

PART = re.compile(r"[A-Za-z0-9_]+", re.ASCII)
OWNER = re.compile(r"team:[A-Za-z0-9_\-. ]+|\b[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}")
RESERVED = {  # suffixes of tables that belong to others
    "__quarantine": "tables of refused rows",
    "__changes": "the bronze tables of CDC tables",
    "__state": "the state of CDC tables",
    "__maintenance": "the maintenance of tables",
}
MAX_TABLE_NAME = 200  # characters; leaves room for the folders of a warehouse
MAX_TARGET_NAME = 128  # of a computed table: its subscription has the same name


@lru_cache(65_536)
def folded(column: str) -> str:
    """A column's name without its letters' case: Spark takes names that fold alike for one column.

    Spark compares names character by character as Java's `equalsIgnoreCase` does, and whole names
    in lower case. Unlike `str.casefold` neither expands a character, so that `maße` and `masse` are
    two columns; `ı` and `İ` are the letter `i`.
    """
    if column.isascii():
        return column.lower()
    # which is how `İ` is written in lower case
    return "".join(map(_folded_character, column)).replace("i\u0307", "i")


def spelled_as(names: Iterable[str], columns: Mapping[str, Any]) -> dict[str, Any]:
    """Values by column, those of columns that Spark takes for one of the names under that name;
    others as they are.

    Columns that would have one name are left as they are: a row of two such columns is none that a
    table can hold.
    """
    exact = dict.fromkeys(names)
    own = {folded(name): name for name in exact}
    spelled = {
        column if column in exact else own.get(folded(column), column): value
        for column, value in columns.items()
    }
    return spelled if len(spelled) == len(columns) else dict(columns)


def _folded_character(one: str) -> str:
    upper = next((upper for upper in (one.upper(), one.title()) if len(upper) == 1), one)
    return upper.lower()[0]


def table_of_lake(declared: str, field: str, table: object) -> Any:
    """The name of a table of the same lake, of whatever names one.

    Raises:
        DeclarationError: it names a cluster: all tables of a lake are of the lake's own.
    """
    name = getattr(table, "name", table)
    if cluster := getattr(table, "cluster", ""):
        remedy = (
            "all tables of a lake are of its own cluster: leave the cluster out, or copy the table "
            "into the lake"
        )
        raise DeclarationError(
            declared, field, f"names {name} of the cluster {shown(cluster)}; {remedy}"
        )
    return name


def checked_table_name(name: object, kind: str, limit: int = MAX_TARGET_NAME) -> str:
    """A table name of dotted parts, each of which can be a part of an asset key and a folder."""
    if not isinstance(name, str) or not name:
        raise DeclarationError(
            f"{kind} {shown(name)}",
            "name",
            "is not a table name; write it first, such as 'bronze.orders'",
        )
    for part in name.split("."):
        if not PART.fullmatch(part):
            raise DeclarationError(
                shown(name),
                "name",
                f"the part {shown(part)} must be of letters, digits and _ (A-Z a-z 0-9 _), at "
                f"least one of them",
            )
    if len(name) > limit:
        raise DeclarationError(
            shown(name), "name", f"has {len(name)} characters; use at most {limit}"
        )
    for suffix, kept in RESERVED.items():
        if name.lower().endswith(suffix):
            raise DeclarationError(
                name, "name", f"ends with {suffix}, which is kept for {kept}; choose another"
            )
    return name


def checked_word(table: str, field: str, value: object) -> str | None:
    """A single word of letters, digits and _, or None."""
    if value is None or (isinstance(value, str) and PART.fullmatch(value)):
        return value
    raise DeclarationError(table, field, f"{shown(value)} must be of letters, digits and _")


def checked_owner(table: str, value: object) -> str | None:
    """An owner as Dagster takes it: an e-mail address or `team:name`."""
    if value is None or (isinstance(value, str) and OWNER.fullmatch(value)):
        return value
    raise DeclarationError(
        table, "owner", f"{shown(value)} is neither an e-mail address nor of the form 'team:name'"
    )


def checked_columns(table: str, field: str, value: object) -> tuple[str, ...]:
    """Column names as a tuple, each once."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise DeclarationError(
            table, field, f"{shown(value)} is not a list of columns; write [{shown(value)}]"
        )
    columns = tuple(value)
    for column in columns:
        if not isinstance(column, str) or not column.strip():
            raise DeclarationError(table, field, f"{shown(column)} is not a column name")
    repeated = [
        column
        for index, column in enumerate(columns)
        if folded(column) in map(folded, columns[:index])
    ]
    if repeated:
        raise DeclarationError(
            table, field, f"names column {shown(repeated[0])} twice; name each once"
        )
    return columns


def checked_levels(table: str, value: object) -> PartitionLevels:
    """Typed partition levels as a user writes them: `{"flight_date": "date", "hour": "int"}`."""
    if isinstance(value, PartitionLevels):
        return value
    if value is not None and not isinstance(value, dict):
        raise DeclarationError(
            table,
            "partitioned_by",
            f'{shown(value)} has no types; write {{"column": "type"}}, such as {{"flight_date": '
            f'"date"}}',
        )
    try:
        levels = PartitionLevels.of(value)
    except InvalidValueError as error:
        raise DeclarationError(table, "partitioned_by", str(error)) from None
    checked_columns(table, "partitioned_by", levels.names)
    return levels


# of a row of a history
START_AT, END_AT, START_SEQ, END_SEQ = SPAN = ("__START_AT", "__END_AT", "__START_SEQ", "__END_SEQ")
# of a row that stays though the database deleted it: when that was; null of one that is there
DELETED_AT = "__DELETED_AT"
HIDDEN = "__cdc"  # the state of a row without its values; see `cdc.state.row_state_text`
OWN_COLUMNS = frozenset((*SPAN, DELETED_AT, HIDDEN))
_OWN = {folded(name) for name in OWN_COLUMNS}
# which a MERGE, files of deletes or what records changes add to rows while they work
_OF_FORMAT = {
    TableFormat.ICEBERG: {
        "_file",
        "_pos",
        "_deleted",
        "_spec_id",
        "_partition",
        "_row_id",
        "_last_updated_sequence_number",
        "_change_type",
        "_change_ordinal",
        "_commit_snapshot_id",
        "__row_from_source",
        "__row_from_target",
        "__row_operation",
    },
    TableFormat.DELTA: {
        "_metadata",
        "_change_type",
        "_commit_version",
        "_commit_timestamp",
        "_row_id_",
        "_file_name_",
        "_source_row_present_",
        "_target_row_present_",
        "_row_dropped_",
        "__delta_internal_is_row_deleted",
        "_tmp_metadata_row_index",
        "filepath",
        "deletionvectorid",
        "rowindexcol",
    },
}
_OF_WRITES = "__lakechime_"  # what those begin with that our own writes add
_CHARACTERS = " ,;{}()\n\t="  # which no name in a Delta table has, nor one in a struct


def is_own_column(name: str) -> bool:
    """Whether a name is that of one of them, in letters of whatever case: Spark takes names for one
    that differ in that alone.
    """
    return folded(name) in _OWN


def why_refused(name: str, table_format: TableFormat = TableFormat.DELTA) -> str | None:
    """Why a table of this format cannot have a column of this name; None where it can."""
    if is_own_column(name) or folded(name).startswith(_OF_WRITES):
        return "CDC tables have columns of that name themselves"
    if folded(name) in _OF_FORMAT.get(table_format, ()):
        return f"{table_format.capitalize()} has columns of that name"
    if "`" in name:
        return "a MERGE of Delta does not find a name with a backtick"
    return refused_characters(name)


def refused_characters(name: str) -> str | None:
    """Why a column, or a field of a struct, cannot have this name in a Delta table; None where it
    can. The tables of other formats have the same names.
    """
    found = [one for one in _CHARACTERS if one in name]
    return f"Delta takes no {', '.join(map(repr, found))} in names" if found else None


_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")


def is_variable(value: str) -> bool:
    """Whether a value stands for that of a variable."""
    return _VARIABLE.fullmatch(value) is not None


def resolved(
    value: str,
    environment: Mapping[str, str],
    where: str,
    remedy: str = "set it where runs and sensors start",
) -> str:
    """A value, or that of the variable that its `$NAME` names.

    Raises:
        InvalidValueError: There is no such variable; `where` names what the value is of.
    """
    variable = _VARIABLE.fullmatch(value)
    if variable is None:
        return value
    if not environment.get(variable[1]):
        raise InvalidValueError(
            where,
            value,
            f"is {'empty' if variable[1] in environment else 'not'} in the environment; {remedy}",
        )
    return environment[variable[1]]


# by scheme of file systems that take no account from settings: how the names of those begin that
# have an effect there
OBEYED = {
    "file": ("fs.permissions.", "fs.file.", "fs.local."),
    **dict.fromkeys(
        ("hdfs", "webhdfs", "swebhdfs", "viewfs"),
        ("fs.permissions.", "fs.hdfs.", "fs.webhdfs.", "fs.viewfs."),
    ),
}


@dataclass(frozen=True)
class Account:
    """As whom Spark writes a table.

    Attributes:
        name: As people know it, such as `shop-writer`.
        settings: Settings of Hadoop's file systems by name, such as `fs.s3a.access.key`. `$NAME` is
            read from the environment of runs.
    """

    name: str
    settings: Mapping[str, str] = field(repr=False, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise DeclarationError(
                "Account", "name", f"{shown(self.name)} is no name, such as shop-writer"
            )
        if not isinstance(self.settings, Mapping) or not self.settings:
            raise DeclarationError(
                "Account",
                "settings",
                "is no map of settings, such as {'fs.s3a.access.key': '$SHOP_KEY'}",
            )
        for setting, value in self.settings.items():
            if not isinstance(setting, str) or not setting.startswith("fs."):
                raise DeclarationError(
                    "Account",
                    "settings",
                    f"{shown(setting)} is none of a file system's, which begin with fs.",
                )
            if not isinstance(value, str):
                raise DeclarationError(
                    "Account",
                    "settings",
                    f"the value of {setting} is no text, or $NAME of a variable",
                )

    def confs(self, location: str, environment: Mapping[str, str]) -> dict[str, str]:
        """The confs of a session that writes to a location.

        Hadoop keeps the file systems that it made, by their scheme and host, with the settings of
        whoever was first: for these a new one is made each time.

        Raises:
            InvalidValueError: The environment has no such variable.
            DeclarationError: Some of the settings have no effect at the location.
        """
        scheme = _scheme(location)
        self.check_at(location, location)
        where = f"Account({self.name!r}), settings"
        own = {
            name: resolved(value, environment, f"{where}[{name!r}]")
            for name, value in self.settings.items()
        }
        return {f"fs.{scheme}.impl.disable.cache": "true", **own}

    def check_at(self, table: str, location: str) -> None:
        """Refuse settings that have no effect where a table lies: a local folder and HDFS take no
        account from settings.

        Raises:
            DeclarationError: naming the table, the setting and the remedy.
        """
        obeyed = OBEYED.get(_scheme(location))
        lost = [
            name for name in self.settings if obeyed is not None and not name.startswith(obeyed)
        ]
        if lost:
            problem = (
                f"{lost[0]} of Account({self.name!r}) has no effect at {location}, which is "
                f"written as the user of the driver's process"
            )
            remedy = (
                "leave write_as out and run the driver as the user who may, or choose a location "
                "on s3a, abfs or gs"
            )
            raise DeclarationError(table, "write_as", f"{problem}; {remedy}")


def _scheme(location: str) -> str:
    return urlsplit(location).scheme or "file"


def checked_account(table: str, value: object, location: str | None) -> Account | None:
    """An account, or none; where the location is declared, its settings have an effect there.

    Raises:
        DeclarationError: naming the table and the remedy.
    """
    if isinstance(value, Account) and location is not None:
        value.check_at(table, location)
    if value is None or isinstance(value, Account):
        return value
    raise DeclarationError(table, "write_as", f"{shown(value)} is no Account(name, {{'fs.…': …}})")


EVERY = ".*"  # at the end of an alias: all names below


def checked_aliases(
    lake: str, aliases: Mapping[str, str], tables: Collection[str]
) -> dict[str, str]:
    """The declared aliases.

    Raises:
        DeclarationError: one means no table of the lake, or all names below for one table.
    """
    for alias, meant in aliases.items():
        field = f"aliases[{shown(alias)}]"
        if not isinstance(alias, str) or not isinstance(meant, str) or not alias or not meant:
            raise DeclarationError(
                f"Lake {lake}",
                field,
                "must be a name that means a name, such as {'hive.bronze.flights': "
                "'bronze.flights'}",
            )
        if alias.endswith(EVERY) != (meant == "*" or meant.endswith(EVERY)):
            problem = (
                f"means {shown(meant)}; end both with .*, or neither, such as {{'hive.*': '*'}}"
            )
            raise DeclarationError(f"Lake {lake}", field, problem)
        if not alias.endswith(EVERY) and meant not in tables:
            raise DeclarationError(
                f"Lake {lake}",
                field,
                f"means {shown(meant)}, which is not in the lake; it has "
                f"{', '.join(sorted(tables))}",
            )
    return dict(aliases)


SEND = "send"  # the setting for the lake's own URLs
REMEDY = (
    "is neither a URL of apprise, such as mailto://user@host or slack://…, nor $NAME of a variable "
    "that holds one"
)
_ALARM_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)


def checked_alarms(lake: str, alarms: Iterable[str]) -> tuple[str, ...]:
    """The declared URLs, or `$NAME`s of variables that hold them.

    Raises:
        DeclarationError: one is neither; it is not shown, as it may be a secret.
    """
    given = (alarms,) if isinstance(alarms, str) else tuple(alarms)
    for number, one in enumerate(given):
        if not isinstance(one, str) or not is_alarm(one):
            raise DeclarationError(f"Lake {lake}", f"alarms[{number}]", REMEDY)
    return given


def is_alarm(text: str) -> bool:
    return bool(_ALARM_VARIABLE.fullmatch(text) or _URL.fullmatch(text))


def destinations(
    declared: Iterable[str], setting: str, environment: Mapping[str, str]
) -> list[str]:
    """To which URLs alarms go: by the setting `send` to the declared ones, otherwise to those that
    it names; none is a dry run.

    Raises:
        InvalidValueError: One is no URL, or the variable that holds one is not in the environment;
            no URL is shown.
    """
    named = list(declared) if setting == SEND else setting.split()
    if setting == SEND and not named:
        raise InvalidValueError(
            "LAKECHIME_ALARMS",
            setting,
            "sends to the alarms of the lake, which declares none; write Lake(…, alarms=[…])",
        )
    found = []
    for number, one in enumerate(named, start=1):
        if not is_alarm(one):
            raise InvalidValueError(
                "LAKECHIME_ALARMS", "…", f"its part {number} {REMEDY}; or write {SEND} alone"
            )
        url = environment.get(one[1:], "") if one.startswith("$") else one
        if not url:
            raise InvalidValueError(
                "alarms", one, "is not in the environment; set it to a URL of apprise"
            )
        found.append(url)
    return found
