"""A table at the end of a chain: its rows, its messages, and what its runs said of them."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from deltalake import DeltaTable

from lakechime_dagster.tables.cdc import CHANGES
from tests.support.chain import Chain
from tests.support.replica import read

Row = tuple[Any, ...]


@dataclass(frozen=True)
class DeployedTable:
    """A table that a chain makes of a database's."""

    chain: Chain
    name: str

    @property
    def bronze(self) -> str:
        return self.name + CHANGES

    @property
    def location(self) -> str:
        return self.chain.location(self.name)

    def rows(self, columns: Sequence[str]) -> list[Row]:
        """All rows by these columns, sorted, read by DataFusion; none before there is a table."""
        if not DeltaTable.is_deltatable(self.location):
            return []
        return sorted(tuple(row[name] for name in columns) for row in read(self.location))

    def messages(self) -> list[dict[str, Any]]:
        return read(self.chain.location(self.bronze))

    def reported(self) -> dict[int, int]:
        """By execution how many messages its run says that it counted, by what became of each."""
        found = self.chain.running.instance.fetch_materializations(
            dg.AssetKey(self.name.split(".")), limit=1000
        ).records
        said = [
            record.asset_materialization.metadata
            for record in found
            if record.asset_materialization
        ]
        counts = {
            name
            for metadata in said
            for name in metadata
            if re.fullmatch(r"events (?!consumed$).+", name)
        }
        return {
            int(str(metadata["number"].value)): sum(
                int(str(metadata[name].value)) for name in counts & metadata.keys()
            )
            for metadata in said
            if counts & metadata.keys()
        }

    def read_by_executions(self) -> dict[int, int]:
        """By execution how many messages lie in the range that its commit names."""
        reported = {
            commit["version"]: commit["operationMetrics"] for commit in self._commits(self.bronze)
        }
        rows = {
            version: int(one.get("numOutputRows") or one.get("num_added_rows") or 0)
            for version, one in reported.items()
        }
        kept = [
            json.loads(commit["userMetadata"])
            for commit in self._commits(self.name)
            if "userMetadata" in commit
        ]
        ends = {one["number"]: int(one["end"]["sources"][self.bronze][1]) for one in kept}
        executions = sorted(ends)
        starts = dict(zip(executions, [-1, *(ends[number] for number in executions)], strict=False))
        return {
            number: sum(rows[version] for version in range(starts[number] + 1, ends[number] + 1))
            for number in executions
        }

    def refused(self) -> list[dict[str, Any]]:
        """Messages and rows that were refused."""
        checkpoints = [
            self.chain.location(f"{table}__quarantine") for table in (self.bronze, self.name)
        ]
        return [
            row
            for checkpoint in checkpoints
            if DeltaTable.is_deltatable(checkpoint)
            for row in read(checkpoint)
        ]

    def _commits(self, table: str) -> list[dict[str, Any]]:
        return DeltaTable(self.chain.location(table)).history()
