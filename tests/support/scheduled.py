"""A sensor of schedules, ticked at moments that a test chooses."""

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakechime_dagster.dce.store import SqlDCEStore


@dataclass
class Ticking:
    """The sensor, its cursor, an instance, and the store's clock."""

    sensor: dg.SensorDefinition
    instance: dg.DagsterInstance
    monkeypatch: pytest.MonkeyPatch
    cursor: str | None = None

    def at(self, moment: str) -> Any:
        """What a tick at a moment of UTC asks for."""
        now = int(dt.datetime.fromisoformat(moment + "+00:00").timestamp() * 1000)
        self.monkeypatch.setattr(SqlDCEStore, "now", lambda _: now)
        with dg.build_sensor_context(instance=self.instance, cursor=self.cursor) as context:
            result = self.sensor.evaluate_tick(context)
        self.cursor = result.cursor
        return result


@contextmanager
def ticking_in(home: Path, store: Path, sensor: dg.SensorDefinition, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ticking]:
    """The sensor in a home of its own, whose store begins as a copy of this one."""
    monkeypatch.setenv("LAKECHIME_HOME", str(home))
    monkeypatch.delenv("LAKECHIME_STORE_URL", raising=False)
    (home / "dce.sqlite").write_bytes(store.read_bytes())
    with dg.DagsterInstance.ephemeral(str(home)) as instance:
        yield Ticking(sensor, instance, monkeypatch)
