"""Law 14: where a range may not be read incrementally, the commit replaces the target, whatever the
refresh mode, and says so.
"""

import datetime as dt
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.dce.snapshots import Verdict
from lakechime_dagster.tables.tables import RefreshMode
from tests.support.refreshes import Source, make_subscription

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("day", pa.date32()), ("k", pa.int64()), ("origin", pa.string())])
FIRST, SECOND = dt.date(2013, 1, 1), dt.date(2013, 1, 2)
MODES: dict[RefreshMode, dict[str, Any]] = {
    RefreshMode.ROWS: {"sql": "SELECT k, origin FROM flights", "keys": ("k",)},
    RefreshMode.AFFECTED_KEYS: {
        "sql": "SELECT origin, count(*) AS n FROM flights GROUP BY origin",
        "keys": ("origin",),
    },
    RefreshMode.PARTITIONS: {
        "sql": "SELECT day, count(*) AS n FROM flights GROUP BY day",
        "partitioned_by": ("day",),
    },
    RefreshMode.FULL: {
        "sql": "SELECT origin, count(*) AS n FROM flights GROUP BY origin",
        "keys": ("origin",),
    },
}
AFTER = {
    RefreshMode.ROWS: [(7, "EWR"), (8, "EWR")],
    RefreshMode.AFFECTED_KEYS: [("EWR", 2)],
    RefreshMode.PARTITIONS: [(SECOND, 2)],
    RefreshMode.FULL: [("EWR", 2)],
}


def recreate(source: Source) -> None:
    """Another table at the same path: nothing of what was there before is left."""
    shutil.rmtree(source.location)
    source.write((SECOND, 7, "EWR"))
    source.write((SECOND, 8, "EWR"))


@pytest.mark.parametrize("mode", MODES)
def test_a_target_is_replaced_whatever_its_mode(
    spark: SparkSession, tmp_path: Path, mode: RefreshMode
) -> None:
    source = Source(tmp_path / "flights", SCHEMA, ("day",))
    source.write((FIRST, 1, "JFK"), (SECOND, 2, "LGA"))
    subscription = make_subscription(
        spark, tmp_path, {"flights": source}, refresh=mode, **MODES[mode]
    )
    subscription.run()
    assert len(subscription.rows) == 2
    recreate(source)
    result = subscription.run()
    assert (result.sources[0].verdict, result.replaced) == (Verdict.RECREATED, True)
    assert any("flights is RECREATED" in note for note in result.notes), result.notes
    assert result.counts.is_balanced, result.counts
    assert subscription.rows == AFTER[mode]
