"""Accounts: as whom a table is written, by the settings of the file system that holds it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from lakechime_dagster.errors import DeclarationError, shown
from lakechime_dagster.lake.variables import resolved

OBEYED = {  # by scheme of file systems that take no account from settings: how the names of those begin that have an effect there
    "file": ("fs.permissions.", "fs.file.", "fs.local."),
    **dict.fromkeys(("hdfs", "webhdfs", "swebhdfs", "viewfs"), ("fs.permissions.", "fs.hdfs.", "fs.webhdfs.", "fs.viewfs.")),
}


@dataclass(frozen=True)
class Account:
    """As whom Spark writes a table.

    Attributes:
        name: As people know it, such as `shop-writer`.
        settings: Of Hadoop's file systems, by their names there, such as `fs.s3a.access.key`; a value `$NAME` is taken from the
            environment of runs.
    """

    name: str
    settings: Mapping[str, str] = field(repr=False, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise DeclarationError("Account", "name", f"{shown(self.name)} is no name, such as shop-writer")
        if not isinstance(self.settings, Mapping) or not self.settings:
            raise DeclarationError("Account", "settings", "is no map of settings, such as {'fs.s3a.access.key': '$SHOP_KEY'}")
        for setting, value in self.settings.items():
            if not isinstance(setting, str) or not setting.startswith("fs."):
                raise DeclarationError("Account", "settings", f"{shown(setting)} is none of a file system's, which begin with fs.")
            if not isinstance(value, str):
                raise DeclarationError("Account", "settings", f"the value of {setting} is no text, or $NAME of a variable")

    def confs(self, location: str, environment: Mapping[str, str]) -> dict[str, str]:
        """The confs of a session that writes to a location.

        Hadoop keeps the file systems that it made, by their scheme and host, with the settings of whoever was first: for these a
        new one is made each time.

        Raises:
            InvalidValueError: The environment has no such variable.
            DeclarationError: Some of the settings have no effect at the location.
        """
        scheme = _scheme(location)
        self.check_at(location, location)
        where = f"Account({self.name!r}), settings"
        own = {name: resolved(value, environment, f"{where}[{name!r}]") for name, value in self.settings.items()}
        return {f"fs.{scheme}.impl.disable.cache": "true", **own}

    def check_at(self, table: str, location: str) -> None:
        """Refuse settings that have no effect where a table lies: a local folder and HDFS take no account from settings.

        Raises:
            DeclarationError: naming the table, the setting and the remedy.
        """
        obeyed = OBEYED.get(_scheme(location))
        lost = [name for name in self.settings if obeyed is not None and not name.startswith(obeyed)]
        if lost:
            problem = (
                f"{lost[0]} of Account({self.name!r}) has no effect at {location}, which is written as the user of the driver's process"
            )
            remedy = "leave write_as out and run the driver as the user who may, or choose a location on s3a, abfs or gs"
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
