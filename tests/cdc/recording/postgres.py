"""A scenario's stage on PostgreSQL."""

from collections.abc import Mapping
from typing import ClassVar

from tests.cdc.recording.stage import SCHEMA, Row, Session, Stage
from tests.cdc.recording.text import canonical, decoded
from tests.support.logical_postgres import PostgresSession


class PostgresStage(Stage):
    """A scenario's database on PostgreSQL."""

    options: ClassVar[Mapping[str, str]] = {"plugin.name": "pgoutput"}

    @property
    def url(self) -> str:
        return f"postgresql://postgres:postgres@127.0.0.1:{self.stack.postgres.port}/{self.scenario.name}"

    def rows(self, table: str) -> list[Row]:
        assert isinstance(self.sql, PostgresSession)
        self.run(
            "SET TimeZone = 'UTC'",
            "SET DateStyle = 'ISO'",
            "SET bytea_output = 'hex'",
            "SET IntervalStyle = 'postgres'",
        )
        keys = self.key(table) or self.run(
            f"SELECT column_name FROM information_schema.columns WHERE table_schema = '{SCHEMA}' "
            f"AND table_name = '{table}'"
            " ORDER BY ordinal_position"
        )
        cursor = self.sql.connection.execute(
            f"SELECT * FROM {table} ORDER BY {', '.join(keys)}".encode()
        )
        result = cursor.pgresult
        assert result is not None
        assert cursor.description is not None
        columns = [(column.name, column.type_display) for column in cursor.description]
        return [
            {
                name: canonical(
                    decoded(result.get_value(row, index)), kind, kind.startswith("timestamptz")
                )
                for index, (name, kind) in enumerate(columns)
            }
            for row in range(result.ntuples)
        ]

    def _create_database(self) -> None:
        admin = self.stack.postgres.session()
        admin.run(
            f"CREATE DATABASE {self.scenario.name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE "
            f"'C' LC_CTYPE 'C'"
        )
        admin.close()
        owner = self.stack.postgres.session(self.scenario.name)
        owner.run(
            f"CREATE SCHEMA {SCHEMA}",
            f"ALTER DATABASE {self.scenario.name} SET search_path = {SCHEMA}, public",
        )
        owner.close()

    def _connected(self) -> Session:
        return self.stack.postgres.session(self.scenario.name)

    def _config(self, name: str) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.stack.postgres.port),
            "database.user": "postgres",
            "database.password": "postgres",
            "database.dbname": self.scenario.name,
            "schema.include.list": SCHEMA,
            "topic.prefix": self.prefix,
            "slot.name": name.replace("-", "_"),
            "slot.drop.on.stop": "true",
            "poll.interval.ms": "50",
        }
