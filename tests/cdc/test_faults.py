"""Each fault between a database and the lake, made for real, and the detector that finds it; in a
clean run none says anything.

The table of faults in `docs/compare-with-a-database.md` is what is found here.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.assets.cdc import kept_up, same
from lakechime_dagster.assets.tables import subscription_of
from lakechime_dagster.cdc.compare import Fault
from lakechime_dagster.cdc.monitor_service import keeping_up
from lakechime_dagster.cdc.service import Replica
from lakechime_dagster.cdc.spark_compare import monitored
from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.errors import ConsumerBlockedError
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.runtime.reconcile import reconcile_table
from lakechime_dagster.tables.cdc import CDCMerge, CDCTable, cdc_table
from lakechime_dagster.tables.databases import Debezium, Limits
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.sources import JsonLines
from tests.sensors.test_tick import ReportedRuns
from tests.support.mariadb import MariaDB
from tests.support.shop import REPORTED_MS, Shop, a_shop
from tests.support.world import ticked

pytestmark = [pytest.mark.tier3, pytest.mark.spark, pytest.mark.services]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compare-with-a-database.md"
HEADING = "## Which fault is found by what"
NAME = "shop.orders"
MINUTE = 60_000


@dataclass
class Watched:
    """A shop, the declaration of its table, and the ledger of the table's consumer."""

    shop: Shop
    table: CDCTable
    platform: Platform
    clock: Callable[[float], None]

    def refresh(self) -> None:
        """An execution."""
        self.shop.refresh()
        self.complete()

    def complete(self) -> None:
        """The sensor of the table ticks, and the ledger knows that all that came is read."""
        bronze = self.platform.log_at(self.shop.lake.bronze, self.table.bronze.name)
        reconcile_table(self.platform, bronze, self.table.bronze.levels)
        for execution in ticked(
            self.platform, subscription_of(self.table), ReportedRuns()
        ).launches:
            self.platform.ledger.complete(execution, None)

    def compared(self, *later: int) -> tuple[dg.AssetCheckResult, dict[str, Fault]]:
        """The check `same_as_database`, and what is wrong with each key; these rows come after the
        cut, so that it is sure.
        """
        coming = iter(later)

        def pause(_: float) -> None:
            self.shop.insert(next(coming))
            self.refresh()

        declared = self.shop.monitor(within=timedelta(minutes=5 if later else 0))
        found = monitored(self.shop.lake.spark, self.shop.tables, declared, pause=pause)
        return same(found, self.table), {key: fault for (key,), fault in found.faults.items()}

    def keeps_up(self) -> dg.AssetCheckResult:
        """The check `keeps_up`."""
        assert self.table.monitor is not None
        return kept_up(keeping_up(Replica(self.platform, self.table)), self.table.monitor.limits)


@pytest.fixture(scope="module")
def watched(
    mariadb: MariaDB, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("faults")
    (folder / "in").mkdir()
    with pytest.MonkeyPatch.context() as patch, a_shop(mariadb, spark.newSession(), folder) as shop:
        patch.setenv("LAKECHIME_HOME", str(folder))
        patch.delenv("LAKECHIME_STORE_URL", raising=False)
        table = cdc_table(
            NAME,
            source=JsonLines(str(folder / "in")),
            envelope=Debezium(),
            merge=CDCMerge(keys=("id",)),
            monitor=shop.monitor(limits=Limits(quiet=timedelta(minutes=30))),
            storage=Storage(location=shop.lake.location),
        )

        def clock(minutes: float) -> None:
            patch.setattr(DCEStore, "now", lambda _: int(REPORTED_MS + minutes * MINUTE))

        clock(1)
        yield Watched(shop, table, open_platform(), clock)


@pytest.fixture(scope="module")
def found(watched: Watched) -> dict[str, str]:
    """Of each fault what its detector says; none says anything before."""
    return {
        **clean(watched),
        **of_columns(watched),
        **of_rows(watched),
        **of_truncation(watched),
        **of_streams(watched),
    }


def clean(watched: Watched) -> dict[str, str]:
    """What happens every day is no fault: changes, messages that come again, a whole snapshot, a
    truncation and its rows.
    """
    shop = watched.shop
    shop.truncate()
    for identity in range(1, 11):
        shop.insert(identity)
    shop.update(2, "changed")
    shop.delete(4)
    shop.messages.append(replace(shop.messages[-1], offset=len(shop.messages)))
    shop.snapshot(*[identity for identity in range(1, 11) if identity != 4])
    watched.refresh()
    result, _ = watched.compared()
    alarms = [check.description for check in (result, watched.keeps_up()) if not check.passed]
    return {"none": f"{len(alarms)} alarms"}


def of_columns(watched: Watched) -> dict[str, str]:
    watched.shop.database.run("ALTER TABLE orders ADD COLUMN extra INT DEFAULT 5")
    result, faults = watched.compared()
    assert faults == {}
    watched.shop.database.run("ALTER TABLE orders DROP COLUMN extra")
    return {"schema drift": f"{reported('same_as_database', result)}: {result.description}"}


def of_rows(watched: Watched) -> dict[str, str]:
    shop = watched.shop
    shop.insert(11, lose=True)
    shop.update(2, "lost", lose=True)
    shop.delete(3, lose=True)
    rows = shop.lake.spark.read.format("delta").load(shop.lake.location)
    rows.where("id = 5").write.format("delta").mode("append").save(shop.lake.location)
    result, faults = watched.compared(20)
    assert len(faults) == 4
    keys = {"lost insert": "11", "lost update": "2", "ghost row": "3", "duplicate": "5"}
    return {
        fault: f"{reported('same_as_database', result)}: {faults[key].value}"
        for fault, key in keys.items()
    }


def of_truncation(watched: Watched) -> dict[str, str]:
    watched.shop.truncate(lose=True)
    result, faults = watched.compared(13)
    assert (set(faults.values()), len(faults)) == ({Fault.EXTRA}, 10)
    return {"truncate": f"{reported('same_as_database', result)}: all extra"}


def of_streams(watched: Watched) -> dict[str, str]:
    shop, faults = watched.shop, dict[str, str]()
    assert watched.keeps_up().passed
    watched.clock(60)
    shop.insert(14, lose=True)
    faults["stuck connector"] = words(watched, watched.keeps_up())

    late, in_time = (
        at(shop.messages[-1], server, ms)
        for server, ms in (("west", REPORTED_MS), ("shop", REPORTED_MS + 59 * MINUTE))
    )
    shop.lake.send([late, in_time])
    watched.complete()
    faults["delayed shard"] = words(watched, watched.keeps_up())

    shop.snapshot(13, 14)
    with pytest.raises(ConsumerBlockedError) as held:
        shop.refresh()
    row = watched.platform.ledger.subscription(NAME)
    assert row is not None
    watched.platform.ledger.block(row, watched.platform.ledger.consumers(row)[""], str(held.value))
    shop.lake.send([at(late, "west", REPORTED_MS + 59 * MINUTE)])  # no longer late
    faults["re-snapshot"] = words(watched, watched.keeps_up())
    return faults


def reported(check: str, result: dg.AssetCheckResult) -> str:
    assert not result.passed
    return f"`{check}` ({result.severity.value})"


def words(watched: Watched, result: dg.AssetCheckResult) -> str:
    (problem,) = (
        str((result.metadata or {})["beyond limits"].value)
        .replace(watched.shop.schema, "db")
        .splitlines()
    )
    return f"{reported('keeps_up', result)}: {problem.removeprefix('- ').partition('; ')[0]}"


def at(record: Any, server: str, ms: int) -> Any:
    """The same message of another server and time."""
    value = json.loads(record.value)
    value["payload"]["source"] |= {"name": server, "ts_ms": ms}
    return replace(
        record, topic=f"{server}.orders", topic_id=server, value=json.dumps(value).encode()
    )


def in_the_page() -> dict[str, str]:
    """By fault, who finds it by which words, as the page says it."""
    section = PAGE.read_text().partition(f"\n{HEADING}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")][2:]
    return {fault.strip(): words.strip() for fault, _, words in rows}


def test_each_fault_is_found_by_its_detector_and_a_clean_run_raises_no_alarm(
    found: dict[str, str],
) -> None:
    assert found == in_the_page()
