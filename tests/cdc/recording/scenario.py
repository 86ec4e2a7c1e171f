"""What a scenario is, and the register of them all."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakechime_dagster.compat import StrEnum

if TYPE_CHECKING:
    from tests.cdc.recording.stage import Stage

EXACT = {
    "key.converter.replace.null.with.default": "false",
    "value.converter.replace.null.with.default": "false",
}

SCHEMALESS = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}


class Database(StrEnum):
    """Where a scenario is played."""

    MARIADB = "mariadb"
    POSTGRES = "postgres"


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is done to a database while a connector watches, and what makes that worth keeping."""

    name: str
    database: Database
    note: str
    play: "Callable[[Stage], None]"
    options: Mapping[str, str] = field(default_factory=dict)
    needs_own_server: bool = False

    @property
    def file(self) -> str:
        return f"{self.database}-{self.name}.jsonl.gz"


SCENARIOS: list[Scenario] = []


def scenario(
    name: str,
    note: str,
    *databases: Database,
    options: Mapping[str, str] | None = None,
    needs_own_server: bool = False,
) -> "Callable[[Callable[[Stage], None]], Callable[[Stage], None]]":
    """Registers what a function plays, for both databases or for those named."""

    def register(play: "Callable[[Stage], None]") -> "Callable[[Stage], None]":
        shared = Scenario(
            name=name,
            database=Database.MARIADB,
            note=note,
            play=play,
            options=EXACT | dict(options or {}),
            needs_own_server=needs_own_server,
        )
        SCENARIOS.extend(replace(shared, database=database) for database in databases or Database)
        return play

    return register
