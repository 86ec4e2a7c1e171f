"""Who reads columns without writing any: dashboards, people, jobs; and whether they do so still."""

from dataclasses import dataclass

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.lineage.columns import ColumnRef

ACTIVE_MS = 24 * 3_600_000  # a dashboard that was read since then is active
RECIPIENT_MS = 35 * ACTIVE_MS  # a consumer that read since then is told of changes


class ConsumerKind(StrEnum):
    """What reads."""

    DASHBOARD = "dashboard"
    USER = "user"
    JOB = "job"


@dataclass(frozen=True, order=True, slots=True)
class Consumer:
    """Who reads: a dashboard or a person by name within what knows it, or a job within its namespace."""

    kind: ConsumerKind
    namespace: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Read:
    """A consumer read columns, or with None as column a data set of which it is not told which; `at_ms` is when it succeeded."""

    consumer: Consumer
    refs: tuple[ColumnRef, ...]
    at_ms: int
    owners: tuple[str, ...] = ()
    link: str = ""
