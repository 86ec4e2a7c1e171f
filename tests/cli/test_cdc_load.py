"""`lakechime cdc load`: the rows of a dump."""

import json
from pathlib import Path
from typing import Any

import pytest

from lakechime_dagster.dce.events import EventQuery
from tests.cli.shop import NAME, Shop
from tests.cli.test_cdc_monitor import reported
from tests.cli.test_cdc_monitor import shop as shop
from tests.support.cli import Cli
from tests.support.replica import read


def dump(folder: Path, *rows: dict[str, Any]) -> Path:
    """The rows of a dump, after the messages of four orders."""
    file = folder / "dump.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows))
    return file


@pytest.fixture
def reported_shop(lakechime: Cli) -> Shop:
    """A table without a database to query."""
    shop = Shop.declared(lakechime)
    shop.send(*[reported(identity, 5) for identity in (1, 2, 3, 4)])
    return shop


def test_a_dump_is_loaded_in_chunks_when_a_person_says_so(
    lakechime: Cli, reported_shop: Shop, tmp_path: Path
) -> None:
    lakechime.monkeypatch.setenv("LAKECHIME_SOURCE_QUERIES", "off")
    file = dump(tmp_path, *({"id": identity, "name": "Zoë", "amount": 7} for identity in (2, 5, 3)))
    given = ("--from", str(file), "--as-of", "mysql-bin.000001:3", "--chunk", "2")
    planned = f'3 rows, the last of them ["3"], would be loaded into {NAME}__changes'
    asked = lakechime("cdc", "load", NAME, *given)
    assert (asked.code, f"error: {planned}; nothing was done: add --yes to do it" in asked.err) == (
        1,
        True,
    )
    assert (
        lakechime("cdc", "load", NAME, *given, "--dry-run").out.strip(),
        len(read(reported_shop.location("__changes"))),
    ) == (planned, 4)

    done = lakechime("cdc", "load", NAME, *given, "--yes", "--json").json
    assert [(one["rows"], one["last"], one["snapshot"]) for one in done["chunks"]] == [
        (2, '["5"]', "binlog 1:3"),
        (1, '["3"]', "binlog 1:3"),
    ]
    rows = [
        row
        for row in read(reported_shop.location("__changes"))
        if row["topic_id"].startswith("lakechime-repair/load/")
    ]
    assert sorted((row["op"], row["row_key"], tuple(row["position"])) for row in rows) == [
        ("r", "[2]", (1, 3, 0)),
        ("r", "[3]", (1, 3, 0)),
        ("r", "[5]", (1, 3, 0)),
    ]
    events = lakechime.platform.store.fetch(EventQuery(table=f"{NAME}__changes"))
    assert [event.event.snapshot_id for event in events][-2:] == ["1", "2"]


def test_what_is_wrong_with_a_dump_is_said(
    lakechime: Cli, reported_shop: Shop, tmp_path: Path
) -> None:
    given = ("cdc", "load", NAME, "--yes", "--from", str(tmp_path / "dump.jsonl"), "--as-of")
    missing = lakechime(*given, "mysql-bin.000001:3")
    assert (
        missing.code,
        "dump.jsonl: there is no such file or folder; name the dump, or mount it here"
        in missing.err,
    ) == (1, True)
    (tmp_path / "dump.jsonl").write_text("")
    assert "the dump has no row for" in lakechime(*given, "mysql-bin.000001:3").err
    odd = lakechime(*given, "yesterday")
    assert (odd.code, "--as-of" in odd.err, "is no position of a database's log" in odd.err) == (
        2,
        True,
        True,
    )
