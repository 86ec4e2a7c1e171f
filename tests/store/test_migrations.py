"""The store's tables are made and changed by migrations that any number of processes may run at once."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Engine, insert, inspect, text

import lakechime_dagster
from lakechime_dagster.dce.position import Position
from lakechime_dagster.errors import StoreVersionError
from lakechime_dagster.store import ledger_schema, migrations
from lakechime_dagster.store.engine import open_engine, reading, writing
from lakechime_dagster.store.events import SqlDCEStore
from lakechime_dagster.store.lineage import ingest_schema, personal_schema
from lakechime_dagster.store.lineage import schema as lineage_schema
from lakechime_dagster.store.notices import schema as notice_schema
from lakechime_dagster.store.schema import dce_availability, dce_table, metadata
from lakechime_dagster.store.types import schema as event_schema
from lakechime_dagster.store.types.measures import measures
from lakechime_dagster.store.types.repository import SqlEventTypes
from lakechime_dagster.store.upgrade import VERSION_TABLE, check, newest_version, upgrade
from tests.factories import make_event
from tests.support.postgres import fresh_database

SCHEMAS = (ledger_schema, event_schema, lineage_schema, notice_schema, ingest_schema, personal_schema)
assert all(one.metadata is metadata for one in SCHEMAS)  # every table is known before schemas are compared

UPGRADE = """
import sys
from lakechime_dagster.store.engine import open_engine
from lakechime_dagster.store.upgrade import upgrade
sys.stdin.readline()
print(upgrade(open_engine(sys.argv[1])))
"""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.services)])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without tables."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'new' / 'dce.sqlite'}"
    else:
        with fresh_database(request.getfixturevalue("postgres_server")) as url:
            yield url


def test_migrated_tables_are_those_of_the_metadata(engine: Engine) -> None:
    def is_ours(object_: object, name: str | None, kind: str, reflected: bool, other: object) -> bool:
        return name != VERSION_TABLE and not (kind == "index" and name == "dce_event_feed" and engine.dialect.name == "sqlite")

    with reading(engine) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "include_object": is_ours})
        assert compare_metadata(context, metadata) == []


def test_the_feed_has_its_index_on_postgresql(postgres_engine: Engine) -> None:
    assert "dce_event_feed" in {index["name"] for index in inspect(postgres_engine).get_indexes("dce_event")}


def test_eight_processes_upgrade_at_once(empty_url: str) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", UPGRADE, empty_url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd=Path(lakechime_dagster.__path__[0]).parent,
        )
        for _ in range(8)
    ]  # fmt: skip
    outputs = [process.communicate("go\n", timeout=120)[0] for process in processes]

    assert [output.strip() for output in outputs] == [newest_version()] * 8
    store = SqlDCEStore(open_engine(empty_url))
    assert len(store.register([make_event()]).registered) == 1
    store.engine.dispose()


def test_a_store_without_tables_asks_for_an_upgrade(empty_url: str) -> None:
    engine = open_engine(empty_url)

    with pytest.raises(StoreVersionError, match="lakechime store upgrade"):
        check(engine)
    with pytest.raises(StoreVersionError, match="lakechime store upgrade"):
        SqlDCEStore(engine).tables()
    upgrade(engine)
    assert check(engine) == newest_version()
    engine.dispose()


def test_a_store_of_a_newer_version_is_left_alone(empty_url: str) -> None:
    engine = open_engine(empty_url)
    upgrade(engine)
    with writing(engine) as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))

    for act in (check, upgrade):
        with pytest.raises(StoreVersionError, match="newer"):
            act(engine)
    engine.dispose()


def test_an_upgrade_keeps_what_is_there(engine: Engine) -> None:
    (event,) = SqlDCEStore(engine).register([make_event(snapshot_id="1")]).registered

    upgrade(engine)

    assert SqlDCEStore(engine).register([make_event(snapshot_id="1")]).duplicates == (event,)


def test_single_tags_that_were_folded_are_put_together_by_the_event_that_had_them(empty_url: str) -> None:
    engine = open_engine(empty_url)
    upgraded_to(engine, "0002")
    singles = [["complete", "true", "0-2"], ["checked", "yes", "0-2"], ["complete", "no", "0-1"]]
    with writing(engine) as connection:
        connection.execute(insert(dce_table).values(table_id=1, cluster="", name="bronze.orders"))
        row = {"newest_tx": 0, "newest_seq": 2, "tag_positions": singles, "first_ts": 1, "last_ts": 2, "events": 2}
        connection.execute(insert(dce_availability).values(table_id=1, partition_key='["a"]', table_uid="", **row))
    upgrade(engine)
    (kept,) = SqlDCEStore(engine).availability("bronze.orders")
    assert kept.tag_positions == {
        (("checked", "yes"), ("complete", "true")): Position(0, 2),
        (("complete", "no"),): Position(0, 1),
    }
    engine.dispose()


def test_the_sums_of_types_begin_with_what_earlier_steps_did(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/dce.sqlite")
    upgraded_to(engine, "0007")
    kind = {"deployment": "d", "group_name": "g", "observed": "{}", "first_ts": 1}
    step = {"type_id": 1, "start_version": 0, "end_version": 1, "rows": 5, "rescued": 1, "pending": 0, "settled_ts": 1}
    steps = [{**step, "execution_id": f"e{n}", "written": n, "discarded": 5 - n, "error": "no room" if n == 2 else ""} for n in (1, 2)]
    with writing(engine) as connection:
        old = sa.table("lc_event_type", *map(sa.column, ("type_id", "type", "table_name", *kind)))
        rows = [{**kind, "type_id": number, "type": name, "table_name": name} for number, name in enumerate(("buy", "sell"), start=1)]
        connection.execute(sa.insert(old), rows)
        connection.execute(sa.insert(event_schema.type_step), steps)
    upgrade(engine)
    buy, sell = measures(SqlEventTypes(engine, "d")).types
    assert (buy.type, buy.written, buy.discarded, buy.rescued, buy.failed_steps) == ("buy", 3, 7, 2, 1)
    assert (sell.type, sell.written, sell.failed_steps, sell.variations) == ("sell", 0, 0, 0)
    engine.dispose()


def test_the_conflicts_of_types_begin_with_the_siblings_that_are_there(empty_url: str) -> None:
    engine = open_engine(empty_url)
    upgraded_to(engine, "0009")
    kind = {"deployment": "d", "group_name": "g", "observed": {}, "first_ts": 1, "pending": 4}
    sibling = {"name": "a__v_string", "field": "a", "holds": "string", "sibling": True}
    within = {"name": "", "field": "", "holds": "object", "fields": [sibling]}
    columns = [{"name": "b", "field": "b", "holds": "array", "element": within}, {**sibling, "fields": [sibling]}]
    with writing(engine) as connection:
        old = sa.table("lc_event_type", *map(sa.column, ("type_id", "type", "table_name", "layout_version", *kind)))
        old.c.observed.type = sa.JSON()
        named = [{**kind, "type_id": at, "type": name, "table_name": name} for at, name in enumerate(("buy", "sell"), start=1)]
        connection.execute(sa.insert(old), [{**one, "layout_version": 2 if one["type"] == "buy" else 0} for one in named])
        layouts = [{"type_id": 1, "version": at, "columns": columns[:at], "decision": "", "actor": "a", "made_ts": 1} for at in (1, 2)]
        connection.execute(sa.insert(event_schema.layout), layouts)
    upgrade(engine)
    told = {one.type: (one.conflicts, one.behind, one.reasons) for one in measures(SqlEventTypes(engine, "d")).types}
    assert told == {"buy": (3, 4, {}), "sell": (0, 4, {})}
    engine.dispose()


def test_the_tables_of_types_lie_where_their_groups_made_them(empty_url: str) -> None:
    engine = open_engine(empty_url)
    upgraded_to(engine, "0010")
    kind = {"deployment": "d", "type": "buy", "table_name": "buy", "observed": {}, "first_ts": 1}
    with writing(engine) as connection:
        old = sa.table("lc_event_type", *map(sa.column, ("group_name", *kind)))
        old.c.observed.type = sa.JSON()
        connection.execute(sa.insert(old), [{**kind, "group_name": name} for name in ("shop", "vip")])
    upgrade(engine)
    types = SqlEventTypes(engine, "d")
    assert [types.types(name)["buy"].home for name in ("shop", "vip")] == ["shop", "vip"]
    engine.dispose()


def upgraded_to(engine: Engine, version: str) -> None:
    """Bring a store to an older version, as the program of that time did."""
    config = Config()
    config.set_main_option("script_location", str(migrations.__path__[0]))
    with writing(engine) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, version)
