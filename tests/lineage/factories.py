"""Records of lineage that name only what matters."""

from lakechime_dagster.lineage.columns import (
    ColumnLineage,
    ColumnRef,
    Kind,
    LineageRecord,
    Producer,
    Source,
    Statement,
    inputs_of,
)


def source(text: str, kind: Kind = Kind.IDENTITY, *, masking: bool = False) -> Source:
    """A source by its name: the table up to the last dot and the column after it, or with a dot at
    the end the table itself.
    """
    table, _, column = text.rpartition(".")
    return Source(ColumnRef(table, column or None), kind, masking)


def make_statement(
    target: str = "gold.daily",
    *,
    inputs: tuple[str, ...] = (),
    indirect: tuple[Source, ...] = (),
    opaque: dict[str, str] | None = None,
    unknown: tuple[str, ...] = (),
    udfs: tuple[str, ...] = (),
    replaces: bool = False,
    through: dict[str, str] | None = None,
    **columns: str | Source | tuple[Source, ...],
) -> Statement:
    """A statement by its columns: the name of the one column that it is a copy of, a source, or
    several.

    `through` names, by column, code that nobody looks into, `udfs` what of that decides on rows.
    """
    code = {name: (one,) for name, one in (through or {}).items()}
    found = [
        ColumnLineage(column=name, sources=_sources(one), udfs=code.get(name, ()))
        for name, one in columns.items()
    ]
    found += [
        ColumnLineage(column=name, opaque=(reason,)) for name, reason in (opaque or {}).items()
    ]
    return Statement(
        target=target,
        columns=tuple(found),
        indirect=indirect,
        inputs=inputs + inputs_of(found, indirect),
        unknown=unknown,
        udfs=udfs,
        replaces=replaces,
    )


def make_record(
    statement: Statement | None = None,
    *,
    run: str = "run-1",
    at: int = 1_000,
    job: str = "daily",
    namespace: str = "test",
    owners: tuple[str, ...] = (),
) -> LineageRecord:
    """A record of a run that succeeded at a time in milliseconds."""
    what = statement if statement is not None else make_statement(delay="bronze.flights.dep_delay")
    return LineageRecord(
        producer=Producer(namespace=namespace, job=job),
        run_id=run,
        at_ms=at,
        statement=what,
        owners=owners,
    )


def _sources(given: str | Source | tuple[Source, ...]) -> tuple[Source, ...]:
    if isinstance(given, str):
        return (source(given),)
    return (given,) if isinstance(given, Source) else given
