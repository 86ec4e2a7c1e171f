"""What holds: a statement that a producer's newest run made, and since when."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakechime_dagster.lineage.record import Producer, Statement


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A statement with who made it.

    It holds from `from_ms`, included, to `to_ms`, excluded, or until now where that is None; `last_ms` is when a run told it last.
    Owners and links are those of the producer's newest run; `code` is the digest of the code that told it last.
    """

    producer: Producer
    statement: Statement
    from_ms: int
    last_ms: int
    to_ms: int | None = None
    owners: tuple[str, ...] = ()
    code: str | None = None
    links: Mapping[str, str] = field(default_factory=dict, hash=False)
