"""Lineage of writes by what they left in the logs of their tables, whichever job, asset or function made them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakechime_dagster.lineage.names import Names
from lakechime_dagster.lineage.plans.statements import Found, Written
from lakechime_dagster.lineage.record import LineageRecord, Producer, summed
from lakechime_dagster.resources.lineage.commits import left
from lakechime_dagster.resources.lineage.runs import completed, lineage_store
from lakechime_dagster.resources.platform import Platform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
class KeptWrite:
    """A table that was written, and the version of the commit by which its lineage is kept; None where it is not.

    `statements` wrote to it, of which those `without` a commit are not kept. `is_told_within` says that only others wrote to it, in a body
    within, which keeps it; `is_logged` is False of a table without a log of commits, of which what Spark reported is kept.
    """

    target: str
    version: str | None = None
    is_told_within: bool = False
    is_logged: bool = True
    statements: int = 1
    without: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether the lineage of each statement is kept, with the commit that it left."""
        return self.is_told_within or (self.version is not None and not self.without)

    @property
    def in_words(self) -> str:
        """What became of the lineage of what was written there."""
        if self.is_told_within:
            return f"{self.target}: its lineage is kept by `lakechime.lineage`"
        if not self.is_logged:
            return f"{self.target}: it has no log of commits; what Spark reported as written is kept, without a version"
        if self.version is None:
            return f"{self.target}: its lineage is not kept, as no commit of this run is in its log"
        left_out = f", but for {self.without} of {self.statements} statements, which left no commit" if self.without else ""
        return f"{self.target}: version {self.version}, its lineage is kept{left_out}"


def kept_writes(
    platform: Platform, found: Found, names: Names, *, producer: Producer, run_id: str, mark: str, stamped_by: str | None = None,
    spark: "SparkSession | None" = None,
) -> Iterator[KeptWrite]:  # fmt: skip
    """Keep the lineage of statements that left a commit with this mark, or with a stamp of an execution of the Dagster run `stamped_by`.

    Tables of others than Delta are known by the session, without which they have no log.
    """
    by_target: dict[str, list[Written]] = {}
    for one in found.writes:
        by_target.setdefault(one.statement.target, []).append(one)
    for target, several in by_target.items():
        seen = left(platform, spark, names, several, mark, stamped_by)
        for statement in summed(one.statement for one, counts in zip(several, seen.counts, strict=True) if counts):
            told = replace(statement, unknown=(*statement.unknown, *found.unknown))
            told = completed(told, platform, seen.location) if seen.location else told
            lineage_store(platform).record(
                LineageRecord(producer=producer, run_id=run_id, at_ms=platform.store.now(), statement=told, version=seen.version)
            )
        own = [one for one in several if not one.dump.is_within]
        yield KeptWrite(
            target=target, version=seen.version, is_told_within=seen.is_told_within and not own, is_logged=seen.is_logged,
            statements=len(own), without=len(own) - seen.counts.count(True),
        )  # fmt: skip
