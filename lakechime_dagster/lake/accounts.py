"""Accounts: as whom a table is written, by the settings of the file system that holds it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from lakechime_dagster.errors import DeclarationError, shown
from lakechime_dagster.lake.variables import resolved


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
        """
        scheme = urlsplit(location).scheme or "file"
        where = f"Account({self.name!r}), settings"
        own = {name: resolved(value, environment, f"{where}[{name!r}]") for name, value in self.settings.items()}
        return {f"fs.{scheme}.impl.disable.cache": "true", **own}


def checked_account(table: str, value: object) -> Account | None:
    """An account, or none.

    Raises:
        DeclarationError: naming the table and the remedy.
    """
    if value is None or isinstance(value, Account):
        return value
    raise DeclarationError(table, "write_as", f"{shown(value)} is no Account(name, {{'fs.…': …}})")
