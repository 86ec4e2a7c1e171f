"""The rows of people in tables of every kind: which are found, and that no value of anybody is in a plan, a log or a message."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from lakechime_dagster.errors import TableUnreadableError
from lakechime_dagster.lake import Asset, CDCMerge, Debezium, JsonLines, Lake, SourceSchema, change_table, personal
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.personal.beside import searched_beside
from lakechime_dagster.lineage.personal.declared import declared_tags
from lakechime_dagster.lineage.personal.keys import Key, Place, Searched, reached, searched
from lakechime_dagster.lineage.personal.planned import planned_ways
from lakechime_dagster.lineage.personal.subjects import Subject
from lakechime_dagster.lineage.plans.dump import dump_of
from lakechime_dagster.spark.lineage.planning import Planner
from lakechime_dagster.spark.personal_search import NOBODY, Match, applied, keys_frame, matches
from lakechime_dagster.spark.session_confs import session_confs
from tests.support.follows import Followed
from tests.support.orders import order

pytestmark = pytest.mark.spark
EMAIL = Key("email")


def subject(line: int, **values: str) -> Subject:
    return Subject(line, tuple(sorted(values.items())))


def found(spark: SparkSession, location: str | Path, places: dict[str, Key], *several: Subject, **options: Any) -> list[Match]:
    """The matches in a table."""
    one = Searched(table="t", places=tuple(Place(name, key) for name, key in places.items()), **options)
    return sorted(matches(keys_frame(spark, several), one, str(location)), key=lambda match: (match.subject, match.row))


def shown(several: list[Match]) -> list[tuple[int, tuple[str, ...], Any]]:
    return [(one.subject, one.by, json.loads(one.row)) for one in several]


def test_a_row_is_found_by_columns_of_any_type_once_for_each_subject(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        {"id": 17, "email": "a", "mails": ["b", "a", "a"], "who": {"name": "x", "all": [{"mail": "c"}]}},
        {"id": 18, "email": None, "mails": None, "who": None},
    ]
    write_deltalake(tmp_path / "t", pa.Table.from_pylist(rows))
    places = {"Email": EMAIL, "mails": EMAIL, "who.all.mail": EMAIL, "id": Key("customer"), "gone": EMAIL}
    asked = [subject(1, email="a"), subject(2, email="c", customer="017"), subject(3, email="d", customer="18"), subject(4, customer="no")]
    expected = [(1, ("Email", "mails"), rows[0]), (2, ("who.all.mail", "id"), rows[0]), (3, ("id",), rows[1])]
    assert shown(found(spark, tmp_path / "t", places, *asked)) == expected
    assert shown(found(spark, tmp_path / "t", places, *asked, is_text=True)) == expected


def test_what_is_applied_to_a_value_is_what_the_code_gives(spark: SparkSession) -> None:
    """For each expression that is followed: its ways, applied to the values of its sources, give its value."""
    expressions = {
        "a": "lower(trim(email))", "b": "sha2(lower(email), 256)", "c": "concat('it\\'s ', upper(email), '!')",
        "d": "md5(cast(id AS string))",
        "e": "sha1(reverse(replace(email, '.', '')))", "f": "sha2(concat(ltrim(email), 'salt'), 512)", "g": "hex(id)",
        "h": "get_json_object(payload, '$.to.email')", "i": "from_json(payload, 'to struct<email:string>').to.email",
        "j": "sha2(address.street, 224)", "k": "coalesce(nullif(email, email), email)", "l": "if(id > 3, email, payload)",
        "m": "max(email) OVER (PARTITION BY id)", "n": "named_struct('x', lower(email)).x", "o": "rtrim('x', lower(email))",
    }  # fmt: skip
    schema = "id bigint, email string, payload string, address struct<street: string>"
    payload = json.dumps({"to": {"email": "In@side"}})
    row = spark.createDataFrame([(17, " Ann@Example.com ", payload, ("Weg 1",))], schema)
    planner = Planner(spark)
    columns = tuple((field.name, field.dataType.jsonValue(), True) for field in row.schema)
    sql = f"SELECT {', '.join(f'{text} AS {name}' for name, text in expressions.items())} FROM people"
    planned = planner.planned(None, sql, {"people": ("people", columns)})
    assert planned.result is not None, planned.why
    plan = dump_of(planned.result).plan
    assert plan is not None
    values = {
        "email": " Ann@Example.com ", "id": "17", "payload": payload, "payload:$.to.email": "In@side", "address.street": "Weg 1",
    }  # fmt: skip
    tags = {ColumnRef("people", name): name.replace(":", "").replace("$", "").replace(".", "_") for name in values}
    given = {tags[ColumnRef("people", name)]: value for name, value in values.items()}
    keys = reached(tags, {"t": planned_ways(plan)}, {ColumnRef("people", "id"): "long"}).keys["t"]
    row.createOrReplaceTempView("people")
    (computed,) = spark.sql(sql).collect()
    frame = spark.createDataFrame([tuple(given.values())], [*given])
    for name in expressions:
        told = {value for row in frame.select(*[applied(frame[key.category], key) for key in keys[name]]).collect() for value in row}
        assert computed[name] in told, (name, expressions[name])
    spark.catalog.dropTempView("people")


def test_functions_that_give_several_people_the_same_are_no_way(spark: SparkSession) -> None:
    schema = (("id", "long", True), ("email", "string", True))
    texts = [
        "substring(email, 1, 3)",
        "mask(email)",
        "split(email, '@')[1]",
        "crc32(email)",
        "concat(email, id)",
        "id % 10",
        "length(email)",
    ]
    sql = f"SELECT {', '.join(f'{text} AS c{at}' for at, text in enumerate(texts))} FROM people"
    planned = Planner(spark).planned(None, sql, {"people": ("people", schema)})
    assert planned.result is not None, planned.why
    plan = dump_of(planned.result).plan
    assert plan is not None
    ways = planned_ways(plan)
    assert not {way for one in ways.values() for way in one.several}
    assert all(one.lost for one in ways.values())


def test_ways_are_followed_through_joins_unions_groups_and_named_queries(spark: SparkSession) -> None:
    several = {"type": "array", "elementType": "string", "containsNull": True}
    schema = (("id", "long", True), ("email", "string", True), ("mails", several, True))
    sql = """WITH a AS (SELECT id, email AS mail FROM people UNION ALL SELECT id, m FROM people LATERAL VIEW explode(mails) AS m)
        SELECT a.mail, min(b.email) AS least, collect_set(lower(b.email)) AS several, count(*) AS n, struct(b.id AS id, a.mail AS m) AS s
        FROM a JOIN people AS b ON a.id = b.id WHERE b.email <> '' GROUP BY a.mail, b.id"""
    planned = Planner(spark).planned(None, sql, {"people": ("people", schema)})
    assert planned.result is not None, planned.why
    plan = dump_of(planned.result).plan
    assert plan is not None
    told = {
        name: {(str(way.source.column), *(step.function for step in way.steps)) for way in one.several}
        for name, one in planned_ways(plan).items()
    }
    assert told == {
        "mail": {("email",), ("mails",)}, "least": {("email",)}, "several": {("email", "Lower")}, "n": set(), "s": set(),
        "s.id": {("id",)}, "s.m": {("email",), ("mails",)},
    }  # fmt: skip


def test_a_person_is_found_in_messages_history_state_and_refused_changes(spark: SparkSession, tmp_path: Path) -> None:
    table = Followed(spark, tmp_path / "shop", ("id",), merge={"stored_as_scd_type": 2}, options={"names": {"name": "called"}})
    broken = replace(order(3, at=9, name="Xanthippe"), value=(order(3, at=9, name="Xanthippe").value or b"").replace(b'"u"', b'"?"'))
    names = [(1, 1, "Xanthippe"), (2, 2, "Yolanda"), (1, 3, "Zenobia"), (2, 4, "Xanthippe")]
    table.tell([*(order(number, at=at, name=name) for number, at, name in names), broken, replace(broken, value=b"{half", offset=10)])
    table.run()
    orders = change_table(
        "shop.orders",
        source=JsonLines("in"),
        envelope=Debezium(),
        merge=CDCMerge(keys=("id",), stored_as_scd_type=2),
        schema=SourceSchema(names={"name": "called"}),
        asset=Asset(columns={"called": personal("name")}),
    )
    lake = Lake("shop", [orders])
    several = reached(declared_tags(lake), {}, {})
    places = {one.table: one for one in (*searched(several, ["shop.orders"]), *searched_beside(lake, several.keys))}
    keys = keys_frame(spark, [subject(1, name="Xanthippe"), subject(2, name="Nobody")])
    told = {name: list(matches(keys, one, f"{tmp_path}/{name.replace('.', '/')}")) for name, one in places.items()}
    rows = {name: [json.loads(one.row) for one in matched if one.subject != NOBODY] for name, matched in told.items()}
    assert {one.subject for matched in told.values() for one in matched} == {1, NOBODY}
    assert sorted(row["id"] for row in rows["shop.orders"]) == [1, 2]
    assert [row["id"] for row in rows["shop.orders"] if row["__END_SEQ"] is not None] == [1]
    assert sorted(row["offset"] for row in rows["shop.orders__changes"]) == [1, 4, 9]
    assert rows["shop.orders__state"]
    assert [json.loads(row["row"])["offset"] for row in rows["shop.orders__quarantine"]] == [9]
    unread = {name: one.rows for name, matched in told.items() for one in matched if one.subject == NOBODY}
    assert unread["shop.orders__changes"] == 1


@contextmanager
def event_log(spark: SparkSession, folder: Path) -> Iterator[None]:
    """All that Spark tells of what it does meanwhile, written as its history server reads it."""
    folder.mkdir()
    context: Any = spark.sparkContext._jsc.sc()  # type: ignore[attr-defined]
    jvm: Any = spark._jvm  # type: ignore[attr-defined]
    conf = context.conf().clone().set("spark.eventLog.compress", "false").set("spark.eventLog.rolling.enabled", "false")
    none = getattr(getattr(jvm.scala, "None$"), "MODULE$")
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "app", none, jvm.java.net.URI(folder.as_uri()), conf, context.hadoopConfiguration()
    )
    listener.start()
    context.addSparkListener(listener)
    try:
        yield
        context.listenerBus().waitUntilEmpty()
    finally:
        context.removeSparkListener(listener)
        listener.stop()


def test_no_value_of_anybody_is_in_a_plan_a_log_or_a_message(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    """Neither those that are asked for nor those of rows, where Spark and its connection tell all they can."""
    rows = [{"id": 4711_0815, "email": "Xanthippe", "payload": '{"to": "Xanthippe"}'}, {"id": 1, "email": "Yolanda", "payload": "{"}]
    write_deltalake(tmp_path / "t", pa.Table.from_pylist(rows))
    places = {"email": EMAIL, "id": Key("customer"), "payload:$.to": EMAIL}
    asked = [subject(1, email="Xanthippe", customer="47110815"), subject(2, customer="Zenobia")]
    caplog.set_level(logging.DEBUG)
    with event_log(spark, tmp_path / "events"), session_confs(spark, {"spark.sql.ui.explainMode": "extended"}):
        assert len(found(spark, tmp_path / "t", places, *asked, is_text=True, texts=("payload",))) == 2
        typed = {name: key for name, key in places.items() if ":" not in name}
        assert len(found(spark, tmp_path / "t", typed, *asked)) == 1
    said = capfd.readouterr()
    log = "".join(one.read_text() for one in (tmp_path / "events").rglob("*") if one.is_file())
    assert "SparkListenerSQLExecutionStart" in log
    assert "BroadcastHashJoin" in log
    for name in ("Xanthippe", "47110815", "Yolanda", "Zenobia"):
        assert name not in log
        assert name not in caplog.text
        assert name not in said.out + said.err


def test_a_table_that_cannot_be_read_is_named_without_what_spark_says(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"email": ["Xanthippe"], "name": ["Xanthippe"]}), partition_by=["name"])
    (file,) = tmp_path.glob("t/*/*.parquet")
    file.unlink()  # Spark tells its path
    with pytest.raises(TableUnreadableError) as refused:
        found(spark, tmp_path / "t", {"email": EMAIL}, subject(1, email="Xanthippe"))
    assert "t cannot be looked in: Spark says" in str(refused.value)
    assert "Xanthippe" not in str(refused.value)
    assert refused.value.__cause__ is None
