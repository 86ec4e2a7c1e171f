"""Creates the tables of the store, and reports their version."""

from pathlib import Path

from sqlalchemy import Connection, Engine, MetaData, Table, func, inspect, select

from lakechime_dagster.dce.engine import is_file_missing, reading, shown_url, writing
from lakechime_dagster.errors import StoreVersionError

VERSION_TABLE = "lakechime_alembic_version"  # Dagster owns `alembic_version` in its database
_LOCK = 0x1A6E_C41E  # PostgreSQL's advisory lock of those who upgrade; any number that is ours


def upgrade(engine: Engine) -> str:
    """Bring the store to this version; its number. Any number of processes may do so at once: one
    does it, all return.

    Raises:
        StoreVersionError: for a store that a newer version wrote.
    """
    with writing(engine) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        current = version_of(connection)
        _refuse_newer(engine, current)
        if current != newest_version():
            _migrate(connection)
    return newest_version()


def check(engine: Engine) -> str:
    """The version of a store that this version can use.

    Raises:
        StoreVersionError: for a store of a newer version, or one that needs an upgrade.
        StoreUnreachableError: for one that cannot be opened.
    """
    current = current_version(engine)
    _refuse_newer(engine, current)
    if current != newest_version():
        found = f"has version {current}" if current else "has no tables yet"
        raise StoreVersionError(
            f"The DCE store {shown_url(engine.url)} {found}, this program needs "
            f"{newest_version()}; run `lakechime store upgrade`."
        )
    return newest_version()


def current_version(engine: Engine) -> str | None:
    """The version of a store as it is; None before its first upgrade, also where not even its file
    is there, which stays so.
    """
    if is_file_missing(engine):
        return None
    with reading(engine) as connection:
        return version_of(connection)


def version_of(connection: Connection) -> str | None:
    """The version of the store's tables; None before the first upgrade."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    table = Table(VERSION_TABLE, MetaData(), autoload_with=connection)
    return connection.execute(select(table.c.version_num)).scalar()


def newest_version() -> str:
    """The newest version that this program knows."""
    return max(_known_versions())


def _migrate(connection: Connection) -> None:
    # a fifth of a second that no process should pay whose store is up to date
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", _folder().as_posix().replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _known_versions() -> list[str]:
    return [path.name.split("_")[0] for path in (_folder() / "versions").glob("[0-9]*.py")]


def _folder() -> Path:
    return Path(__file__).parent.parent / "migrations"


def _refuse_newer(engine: Engine, current: str | None) -> None:
    if current is not None and current not in _known_versions():
        raise StoreVersionError(
            f"The DCE store {shown_url(engine.url)} has version {current}, written by a newer "
            f"program than this one, which "
            f"knows {newest_version()}; update lakechime-dagster."
        )
