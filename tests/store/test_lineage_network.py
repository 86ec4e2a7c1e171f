"""The network that is read from a store is that of the statements which hold."""

import numpy as np
from sqlalchemy import Engine

from lakechime_dagster.lineage.columns import ColumnRef, Statement
from lakechime_dagster.lineage.graph import Part
from lakechime_dagster.lineage.network import Network, network_of
from lakechime_dagster.lineage.recording import SqlLineage
from lakechime_dagster.lineage.service import network_around, network_at
from tests.lineage.factories import make_record, make_statement

DECLARED = [Statement(target="gold.new", inputs=("s",)), Statement(target="t", inputs=("s",))]
SPELLED = ["bronze.people", "mart.people", "silver.people", "gold.people"]


def reported(network: Network) -> list[set[tuple[str, str, int]]]:
    """Its edges by names."""
    return [
        {
            (str(network.ref(source)), str(network.ref(target)), kind)
            for source, target, kind in zip(
                edges.sources.tolist(), edges.targets.tolist(), edges.kinds.tolist(), strict=True
            )
        }
        for edges in (network.inputs, network.edges, network.unsure)
    ]


def test_a_network_is_read_from_every_database(engine: Engine) -> None:
    assert reported(network_at(engine)) == [set(), set(), set()]
    statement = make_statement(a="s.a", opaque={"b": "rows of an RDD"}, inputs=("t",))
    SqlLineage(engine).record_all(
        [make_record(statement, run="one", at=1), make_record(statement, job="another")]
    )
    assert reported(network_at(engine)) == reported(network_of([statement]))


def test_what_others_report_of_a_declared_table_says_nothing_of_what_its_subscription_reads(
    engine: Engine,
) -> None:
    lineage, planned = SqlLineage(engine), make_statement("planned", a="s.x")
    declared = [planned, Statement(target="planned", inputs=("s",)), *DECLARED]
    other = [
        make_record(make_statement(one, b="s.y"), run="of another", namespace="dbt", job="t")
        for one in ("t", "planned")
    ]
    beside = make_record(
        make_statement("t", b="s.y"), run="of a program", namespace="lake", job="by hand"
    )
    lineage.record_all([*other, beside])
    others = [one.statement for one in (*other, beside)]
    before = reported(network_at(engine, declared, "lake"))
    assert before == reported(network_of(others, declared, ()))
    assert ("s", "t", Part.DECLARED) in before[0]
    assert ("s.x", "planned.a", 1) in before[1]
    lineage.record(
        make_record(
            make_statement("t", b="s.y"), run="of the subscription", namespace="lake", job="t"
        )
    )
    after = reported(network_at(engine, declared, "lake"))
    assert after == reported(network_of(others, declared, ("t",)))
    assert ("s", "t", Part.DECLARED) not in after[0]
    part = network_around(engine, ["s"], declared=declared, namespace="lake")
    assert part is not None
    assert reported(part) == after


def test_a_column_is_one_node_in_whatever_spelling(engine: Engine) -> None:
    """The store keeps the spelling that it met first; a plan may have another one."""
    lineage = SqlLineage(engine)
    lineage.record(make_record(make_statement("mart.people", mail="bronze.people.EMAIL")))
    lineage.record(make_record(make_statement("silver.people", a="bronze.people.email"), job="b"))
    planned = make_statement("gold.people", b="bronze.people.Email")
    for network in (network_at(engine, [planned]), network_at(engine, [planned], tables=SPELLED)):
        node = network.node(ColumnRef("bronze.people", "email"))
        assert node is not None
        assert node == network.node(ColumnRef("bronze.people", "EMAIL"))
        assert {str(network.ref(one)) for one in network.direct.next_of(np.array([node]))} == {
            "mart.people.mail",
            "silver.people.a",
            "gold.people.b",
        }
