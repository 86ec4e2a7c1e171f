"""Records what Debezium really says: plays scenarios against real databases and keeps the messages
of their topics.

`python -m tests.cdc.recording` for all scenarios, or with names: `basics`, `postgres-toast`. One
file per scenario comes into captures/: a header, the messages in the order of (topic, partition,
offset), and for each table its rows as the database has them at the end, which is what folding the
messages must give.
Topics of Connect's own and of the sentinel table, by whose rows the recorder knows that all has
arrived, are left out.

Rows are in canonical text: NULL is null; numbers as exact decimal text, float and double as
Python's `repr` of the shortest number that is the same in their width; binary as hex; bits as 0 and
1; dates and times as Python's `isoformat(" ")` has them (six digits of a second or none), with
+00:00 where the type knows a zone; booleans true and false; everything else as the database's own
text.
"""

import gzip
import json
import logging
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

# The modules of scenarios are imported so that these register.
from tests.cdc.recording import (  # noqa: F401
    changes,
    column_types,
    edges,
    envelopes,
    schemas,
    snapshots,
    transactions,
)
from tests.cdc.recording.broker import Broker
from tests.cdc.recording.mariadb import MariaDBStage
from tests.cdc.recording.postgres import PostgresStage
from tests.cdc.recording.scenario import SCENARIOS, Database, Scenario
from tests.cdc.recording.stack import Stack, started
from tests.cdc.recording.stage import SCHEMA, Stage
from tests.support.mariadb import mariadb_server

CAPTURES = Path(__file__).parents[1] / "captures"
CONNECTOR = "3.5.0.Final"
logger = logging.getLogger(__name__)


def main(names: Sequence[str]) -> None:
    """Records the scenarios of these names, or all."""
    wanted = [
        each
        for each in SCENARIOS
        if not names or {each.name, f"{each.database}-{each.name}"} & set(names)
    ]
    if not wanted:
        raise SystemExit(
            f"no such scenario; there are {', '.join(sorted({each.name for each in SCENARIOS}))}"
        )
    CAPTURES.mkdir(exist_ok=True)
    failed = []
    with started() as stack:
        broker = Broker(stack.kafka)
        try:
            for each in wanted:
                try:
                    file = record(stack, broker, each)
                except (RuntimeError, AssertionError):
                    logger.exception("%s-%s could not be recorded", each.database, each.name)
                    failed.append(f"{each.database}-{each.name}")
                else:
                    logger.info("%s: %d bytes", file.name, file.stat().st_size)
        finally:
            broker.close()
    if failed:
        raise SystemExit(f"not recorded: {', '.join(failed)}")


def record(stack: Stack, broker: Broker, scenario: Scenario) -> Path:
    """Plays one scenario and writes its file."""
    with ExitStack() as ends:
        mariadb = stack.mariadb
        if scenario.needs_own_server:
            mariadb = ends.enter_context(mariadb_server(stack.folder / scenario.name))
        stage: Stage
        if scenario.database is Database.MARIADB:
            stage, version = MariaDBStage(stack, broker, scenario, ends, mariadb), mariadb.version
        else:
            stage, version = PostgresStage(stack, broker, scenario, ends), stack.postgres.version
        scenario.play(stage)
        stage.complete()
        tables = {
            table: (stage.topic(table), stage.key(table), stage.rows(table))
            for table in stage.tables()
        }
        stage.end()
        topics = [name for name in broker.topics() if stage.is_recorded(name)]
        header = {
            "scenario": scenario.name,
            "database": f"{scenario.database} {version}",
            "connector": f"debezium {CONNECTOR}",
            "keys": {topic: key for topic, key, _ in tables.values()},
            "note": scenario.note,
            "options": {**stage.options, **scenario.options},
        }
        readings = [
            {
                "columns": one.columns,
                "table": one.table,
                "position": one.order.position,
                "dialect": one.dialect,
            }
            for one in stage.readings
        ]
        truth = [
            {"table": f"{SCHEMA}.{table}", "topic": topic, "rows": rows}
            for table, (topic, _, rows) in tables.items()
        ]
        messages = [message for topic in topics for message in broker.messages(topic)]
    return _write(CAPTURES / scenario.file, [header, *messages, *readings, *truth])


def _write(file: Path, lines: Sequence[object]) -> Path:
    """A compressed file that differs only if its content does."""
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    with (
        file.open("wb") as stream,
        gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0) as archive,
    ):
        archive.write(text.encode())
    return file


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main(sys.argv[1:])
