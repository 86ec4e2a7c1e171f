"""`lakechime personal request`: the rows of people who ask, in files, and where they cannot be
found.
"""

import hashlib
import json
import logging
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakechime_dagster.lineage.columns import Kind
from lakechime_dagster.lineage.recording import SqlLineage
from lakechime_dagster.silver.requests import event_types
from lakechime_dagster.spark.driver import Driver
from lakechime_dagster.tables.events import event_group
from lakechime_dagster.tables.options import Storage, personal
from tests.cli.game import GAME, Game, event
from tests.lineage.factories import make_record, make_statement, source
from tests.support.cli import Cli
from tests.support.event_types import learning, prototype, registered

LAKE = """
from lakechime_dagster import Asset, JsonLines, Lake, SourceTable, Storage, event_group, event_stream, personal, sql_table
mail, street = personal("email"), personal("street")
people = SourceTable("bronze.people", asset=Asset(columns={"email": mail, "address.street": street, "fax": street}))
ice = SourceTable("bronze.ice", storage=Storage(format="iceberg"), asset=Asset(columns={"email": mail}))
letters = SourceTable("bronze.letters", asset=Asset(columns={"payload:$.to[].email": mail}))
visits = SourceTable("bronze.visits", asset=Asset(columns={"customer": personal("customer")}))
members = sql_table("silver.members", refresh="full", asset=Asset(columns={"email": mail}), sql='''
    SELECT id, lower(trim(email)) AS email, sha2(lower(email), 256) AS hash, substring(email, 1, 1) AS letter FROM bronze.people''')
hashes = sql_table("gold.hashes", refresh="full", sql="SELECT hash, count(*) AS n FROM silver.members GROUP BY hash")
opaque = sql_table("gold.opaque", refresh="full", sql="SELECT f(email) AS mail FROM bronze.people")
game = event_stream("game", source=JsonLines("in"))
shop = event_group("shop", game, columns={"/user/email": personal("email")})
pay = event_group("pay", game, match="pay.*", columns={"/email": mail}, storage=Storage(format="iceberg"))
lake = Lake("shop", [people, ice, letters, visits, members, hashes, opaque, game, shop, pay])
"""
ANN, BOB = "Ann@Example.com", "bob@example.com"


@pytest.fixture
def people(lakechime: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A lake that has no tables yet."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("LAKECHIME_LAKE", "known_lake:lake")
    monkeypatch.setenv("LAKECHIME_SPARK_DRIVER", "local")
    (tmp_path / "known_lake.py").write_text(LAKE, encoding="utf-8")
    sys.modules.pop("known_lake", None)
    return lakechime


@pytest.fixture
def tables(people: Cli) -> Cli:
    """The tables of two people: those that others write, one computed and one beside it, and those
    of a stream's events.
    """

    def write(table: str, *rows: dict[str, Any]) -> None:
        write_deltalake(people.platform.location(table), pa.Table.from_pylist(list(rows)))

    write(
        "bronze.people",
        *(
            {"id": at, "email": one, "address": {"street": "Weg 1"}}
            for at, one in enumerate((ANN, BOB))
        ),
    )
    write(
        "bronze.letters",
        *({"payload": json.dumps({"to": [{"email": "x"}, {"email": one}]})} for one in (ANN, BOB)),
        {"payload": "{"},
    )
    write("bronze.visits", {"customer": 47110815}, {"customer": 18})
    hashes = [hashlib.sha256(one.lower().encode()).hexdigest() for one in (ANN, BOB)]
    write(
        "silver.members",
        *(
            {"id": at, "email": one.lower(), "hash": "", "letter": ""}
            for at, one in enumerate((ANN, BOB))
        ),
    )
    write(
        "silver.members__quarantine",
        *({"reason": "it is old", "row": json.dumps({"email": one.lower()})} for one in (ANN, BOB)),
    )
    write("gold.hashes", *({"hash": one, "n": 1} for one in hashes))
    write("gold.opaque", {"mail": ANN.upper()})
    mail, digest = (
        "bronze.people.email",
        source("bronze.people.email", Kind.TRANSFORMATION, masking=True),
    )
    for statement in (
        make_statement("silver.members", hash=digest, letter=source(mail, Kind.TRANSFORMATION)),
        make_statement("gold.hashes", hash="silver.members.hash"),
        make_statement("gold.opaque", opaque={"mail": "a UDF"}, inputs=("bronze.people",)),
    ):
        SqlLineage(people.platform.store.engine).record(
            make_record(statement, namespace="local", job=statement.target)
        )
    shop = event_group("shop", GAME, columns={"/user/email": personal("email")})
    game = Game(people, shop)
    game.come(
        event("buy", user={"email": ANN}),
        event("buy", user={"email": BOB}),
        b'{"user": {"email": "Ann@Example.com"}}',
    )
    game.execute()
    pay = event_group("pay", GAME, match="pay.*", storage=Storage(format="iceberg"))
    types = event_types(people.platform)
    known = registered(types, "pay.card", groups=(pay, shop))
    types.learn("pay", [learning(known, prototype(email=ANN))])
    write(
        "shop.buy",
        *({"user": {"email": one}, "_rescued": None} for one in (BOB, ANN)),
        {"user": None, "_rescued": f'[{{"v": "{ANN}"}}]'},
    )
    return people


def rows(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table's file."""
    return {
        one.name.removesuffix(".jsonl"): [json.loads(line) for line in one.read_text().splitlines()]
        for one in folder.glob("*.jsonl")
    }


def written(folder: Path) -> set[str]:
    """What stands in a folder beside compiled code."""
    return {one.name for one in folder.iterdir()} - {"__pycache__"}


@pytest.mark.spark
def test_rows_are_found_by_the_value_and_by_what_the_code_makes_of_it(
    tables: Cli, spark_driver: Driver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = (tables.home / "dce.sqlite").read_bytes()
    caplog.set_level(logging.DEBUG)
    reported = tables(
        "personal",
        "request",
        "--to",
        "out",
        "--json",
        stdin=json.dumps({"email": ANN}) + '\n\n{"customer": "047110815"}\n',
    )
    assert reported.code == 0, reported.err
    found = rows(tmp_path / "out")
    assert {name: [one["subject"] for one in several] for name, several in found.items()} == {
        "bronze.people": [1],
        "bronze.letters": [1],
        "bronze.visits": [3],
        "silver.members": [1],
        "silver.members__quarantine": [1],
        "game.events": [1, 1],
        "shop.buy": [1, 1],
    }
    assert found["bronze.people"] == [
        {
            "subject": 1,
            "by": ["email"],
            "row": {"id": 0, "email": ANN, "address": {"street": "Weg 1"}},
        }
    ]
    assert found["silver.members"][0]["by"] == ["email"]
    assert {
        json.dumps(json.loads(one["row"]["payload"])["user"]) for one in found["game.events"]
    } == {json.dumps({"email": ANN})}
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert reported.json == {"folder": "out", **summary}
    assert (summary["subjects"], summary["rows"]) == (2, 9)
    unreadable = {one["table"]: one["unreadable"] for one in summary["tables"] if one["unreadable"]}
    assert unreadable == {"bronze.letters": 1}
    lost = {
        (one["table"], one["column"], one["category"]): one["why"]
        for one in summary["out_of_reach"]
        if one["lines"] == [1, 3]
    }
    assert lost == {
        (
            "bronze.ice",
            "email",
            "email",
        ): "it is a table of ICEBERG: only Delta tables are searched",
        (
            "pay.pay__card",
            "email",
            "email",
        ): "it is a table of ICEBERG: only Delta tables are searched",
        ("gold.opaque", "mail", "street"): "no value of street is given",
    }
    of_one = {
        f"{one['table']}.{one['column']}": one["why"]
        for one in summary["out_of_reach"]
        if one["lines"] == [1]
    }
    digests = "hashes and masks are not looked for"
    assert of_one == {
        "bronze.visits.customer": "no value of customer is given",
        "gold.hashes.hash": digests,
        "gold.opaque.mail": "it is unknown which columns hold values",
        "silver.members.hash": digests,
        "silver.members.letter": "values that a function has changed are not looked for",
    }
    of_other = {one["table"] for one in summary["out_of_reach"] if one["lines"] == [3]}
    assert {"bronze.people", "bronze.letters", "gold.hashes", "shop.buy", "game.events"} <= of_other
    reported_beside = (
        reported.out + reported.err + caplog.text + (tmp_path / "out" / "summary.json").read_text()
    )
    assert not [
        one for one in (ANN, "ann@", "47110815", BOB) if one.lower() in reported_beside.lower()
    ]
    assert (tables.home / "dce.sqlite").read_bytes() == before
    assert {stat.S_IMODE(one.stat().st_mode) for one in (tmp_path / "out").iterdir()} == {0o600}
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o700


@pytest.mark.spark
def test_nothing_is_left_where_a_table_cannot_be_read(
    people: Cli, spark_driver: Driver, tmp_path: Path
) -> None:
    for table in ("bronze.letters", "bronze.people"):
        payload = json.dumps({"to": [{"email": ANN}]})
        write_deltalake(
            people.platform.location(table), pa.table({"payload": [payload], "email": [ANN]})
        )
    for file in Path(people.platform.location("bronze.people")).glob("*.parquet"):
        file.write_bytes(b"Ann@Example.com" * 9)
    known = written(tmp_path)
    reported = people("personal", "request", "--to", "out", stdin=json.dumps({"email": ANN}))
    assert reported.code == 1
    assert "error: bronze.people cannot be searched: Spark says" in reported.err
    assert "Ann" not in reported.err
    assert written(tmp_path) == known


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda folder: (folder / "x").write_text(""), "is not empty"),
        (lambda folder: (folder.rmdir(), folder.symlink_to("elsewhere")), "is no folder"),
        (lambda folder: folder.rmdir(), "cannot be made"),
    ],
)
def test_a_folder_that_is_not_new_is_refused(
    people: Cli, tmp_path: Path, make: Callable[[Path], Any], why: str
) -> None:
    (tmp_path / "out").mkdir()
    make(tmp_path / "out")
    name = "out/of/all" if why == "cannot be made" else "out"
    reported = people("personal", "request", "--to", name, stdin='{"email": "a@b.c"}')
    assert (reported.code, why in reported.err) == (1, True), reported.err
