"""`lakechime cdc load` beside a real MariaDB."""

import pytest

from lakechime_dagster.dce.store import EventQuery
from lakechime_dagster.lake import Monitor
from tests.cli.shop import NAME, Shop
from tests.cli.test_cdc_monitor import shop as shop
from tests.support.cli import Cli
from tests.support.follows import read


@pytest.mark.spark
@pytest.mark.services
def test_a_table_is_loaded_in_chunks_when_a_person_says_so(lakechime: Cli, shop: Shop) -> None:
    planned = f'3 rows, the last of them ["3"], and all above, in chunks of as many, would be told to {NAME}__changes'
    asked = lakechime("cdc", "load", NAME, "--chunk", "3")
    assert (asked.code, f"error: {planned}; nothing was done: say --yes to do it" in asked.err) == (1, True)
    dry = lakechime("cdc", "load", NAME, "--chunk", "3", "--yes", "--dry-run")
    assert (dry.code, dry.out.strip()) == (0, planned)
    assert len(read(shop.location("__changes"))) == 4

    done = lakechime("cdc", "load", NAME, "--chunk", "3", "--yes", "--json")
    document = done.json
    assert (document["rows"], document["total"], document["is_last"], document["dry_run"]) == (4, 4, True, False)
    assert [(one["rows"], one["last"], one["version"]) for one in document["chunks"]] == [(3, '["3"]', 1), (1, '["5"]', 2)]
    told = [row for row in read(shop.location("__changes")) if row["topic_id"].startswith("lakechime-repair/load/")]
    assert sorted((row["op"], row["row_key"]) for row in told) == [("r", "[1]"), ("r", "[2]"), ("r", "[3]"), ("r", "[5]")]
    assert {one["key"] for row in told for one in row["headers"]} == {"lakechime-origin", "lakechime-load"}
    events = lakechime.platform.store.fetch(EventQuery(table=f"{NAME}__changes"))
    assert [event.event.snapshot_id for event in events][-2:] == ["1", "2"]
    assert f"4 rows were told to {NAME}__changes in 1 chunk; its lane takes them from there" in lakechime("cdc", "load", NAME, "--yes").out


def test_what_cannot_be_loaded_is_told_by_its_reason(lakechime: Cli) -> None:
    Shop.declared(lakechime)
    missing = lakechime("cdc", "load", NAME, "--yes")
    assert (missing.code, "declare change_table(…, monitor=Monitor(…))" in missing.err) == (1, True)
    Shop.declared(lakechime, monitor=Monitor(database="$NOT_THERE", table="shop.orders"))
    none = lakechime("cdc", "load", NAME, "--chunk", "0")
    assert (none.code, "Invalid value for '--chunk': Input should be greater than or equal to 1" in none.err) == (2, True)
    silent = lakechime("cdc", "load", NAME, "--yes")
    assert (silent.code, "no message tells a row yet" in silent.err, "start the connector" in silent.err) == (1, True, True)
    lakechime.monkeypatch.setenv("LAKECHIME_SOURCE_QUERIES", "off")
    off = lakechime("cdc", "load", NAME, "--yes")
    assert (off.code, "LAKECHIME_SOURCE_QUERIES is off" in off.err) == (1, True)
