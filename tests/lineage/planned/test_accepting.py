"""How long a manifest keeps that a finding of the gate was accepted."""

from dataclasses import replace

import pytest

from lakechime_dagster.lineage.check import compare, still_made
from lakechime_dagster.lineage.manifest import Manifest, PlannedTable
from tests.lineage.planned.test_gate import PAID, SOURCE, TOWNS, WITHOUT_TWICE, make_column, make_manifest, with_column

OTHER_TWICE = with_column(PAID, "twice", digest="0f")


def agreed(before: Manifest, after: Manifest) -> dict[str, str]:
    return {one.key: "agreed on Monday" for one in compare(before, after)}


@pytest.mark.parametrize(
    "paid",
    [
        replace(PAID, rows="0f"),
        OTHER_TWICE,
        with_column(PAID, "twice", type="string"),
        WITHOUT_TWICE,
        replace(PAID, laid_out={"keys": "id"}),
        replace(PAID, code="0f", unknown=("an RDD",)),
        replace(PAID, columns=(), unknown=("[UNRESOLVED_COLUMN] twice",)),
    ],
)
def test_what_is_accepted_stays_until_the_code_is_another_one(paid: PlannedTable) -> None:
    before, after = make_manifest(SOURCE, PAID, TOWNS), make_manifest(SOURCE, paid, TOWNS)
    accepted = agreed(before, after)
    assert {key.split(": ")[1].split(".")[0] for key in accepted} == {"silver", "gold"}
    assert still_made(accepted, after.tables.values()) == accepted
    assert still_made(accepted, before.tables.values()) == {}


def test_a_change_of_something_else_takes_nothing_back() -> None:
    accepted = agreed(make_manifest(SOURCE, PAID, TOWNS), make_manifest(SOURCE, OTHER_TWICE, TOWNS))
    more = replace(OTHER_TWICE, columns=(*OTHER_TWICE.columns, make_column("new", digest="2f")), code="2f")
    assert still_made(accepted, [SOURCE, more, TOWNS]) == accepted
