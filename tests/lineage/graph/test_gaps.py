"""What is not known of a data set, with the reason."""

from collections.abc import Sequence

import pytest

from lakechime_dagster.lineage.columns import ColumnRef, Statement
from lakechime_dagster.lineage.graph import Gap, GapKind, TableFacts, gap_of, gaps
from tests.lineage.factories import make_statement

KNOWN = make_statement(delay="bronze.flights.dep_delay")
PARTLY = make_statement(delay="bronze.flights.dep_delay", opaque={"risk": "rows of an RDD"})
OPAQUE = make_statement(opaque={"risk": "rows of an RDD"})
CODE = make_statement(
    risk="bronze.flights.dep_delay", through={"risk": "Python UDF f"}, udfs=("mapInPandas",)
)
DROPPED = make_statement(unknown=("events were dropped",))
NOBODY, DECLARED, SOURCE = (
    TableFacts(),
    TableFacts(is_declared=True),
    TableFacts(is_declared=True, is_source=True),
)


@pytest.mark.parametrize(
    ("reported", "facts", "planned", "gap"),
    [
        ([KNOWN], NOBODY, None, None),
        ([KNOWN], SOURCE, None, None),
        ([KNOWN, PARTLY], NOBODY, None, Gap(GapKind.PART, ("gold.daily.risk: rows of an RDD",))),
        ([OPAQUE, OPAQUE], NOBODY, None, Gap(GapKind.WHOLE, ("gold.daily.risk: rows of an RDD",))),
        (
            [CODE],
            NOBODY,
            None,
            Gap(GapKind.WHOLE, ("gold.daily: mapInPandas", "gold.daily.risk: Python UDF f")),
        ),
        ([DROPPED], NOBODY, None, Gap(GapKind.WHOLE, ("gold.daily: events were dropped",))),
        (
            [],
            NOBODY,
            None,
            Gap(GapKind.WHOLE, ("no run that wrote gold.daily has recorded lineage",)),
        ),
        (
            [],
            DECLARED,
            None,
            Gap(
                GapKind.WHOLE,
                (
                    (
                        "no run that wrote gold.daily has recorded lineage yet: only its declared "
                        "reads are known"
                    ),
                ),
            ),
        ),
        (
            [],
            DECLARED,
            KNOWN,
            Gap(
                GapKind.PART,
                (
                    (
                        "no run that wrote gold.daily has recorded lineage yet: only what is planned "
                        "is known"
                    ),
                ),
            ),
        ),
        (
            [],
            SOURCE,
            None,
            Gap(
                GapKind.EXTERNAL,
                ("gold.daily is written externally, and its sources are not recorded",),
            ),
        ),
    ],
)
def test_a_table_says_how_much_of_it_is_not_known_and_why(
    reported: Sequence[Statement], facts: TableFacts, planned: Statement | None, gap: Gap | None
) -> None:
    assert gap_of("gold.daily", reported, facts, planned) == gap


def test_of_a_column_its_own_reasons_are_reported_and_that_nobody_assigned_it() -> None:
    def why(column: str) -> list[str]:
        return list(gaps(ColumnRef("gold.daily", column), [PARTLY], NOBODY, None))

    assert [why("delay"), why("risk"), why("other")] == [
        [],
        ["gold.daily.risk: rows of an RDD"],
        ["no recorded run has assigned gold.daily.other"],
    ]
