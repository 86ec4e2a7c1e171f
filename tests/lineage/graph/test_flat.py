"""The flattened network is what a search from each table and each column finds."""

from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.lineage.columns import Statement
from lakechime_dagster.lineage.flat import column_pairs, table_pairs
from lakechime_dagster.lineage.graph import Part, parts_of
from lakechime_dagster.lineage.network import Certainty, Network, network_of
from tests.lineage.graph.test_answers import MANY, walked

Rows = set[tuple[str, str, int, str]]
DECLARED = st.lists(
    st.builds(
        lambda target, source: Statement(target=target, inputs=(source,)),
        st.sampled_from("st"),
        st.sampled_from("uv"),
    )
)


def reported(network: Network, *, columns: bool) -> Rows:
    """Each pair, which is there once."""
    rows = [
        (str(network.ref(source)), str(network.ref(target)), layer, Certainty(kind).name)
        for some in (column_pairs(network) if columns else table_pairs(network))
        for source, target, layer, kind in zip(
            some.sources.tolist(),
            some.targets.tolist(),
            some.layers.tolist(),
            some.kinds.tolist(),
            strict=True,
        )
    ]
    assert len({(source, target) for source, target, _, _ in rows}) == len(rows)
    return {*rows}


def tables_from(
    edges: dict[tuple[str, str], Part], start: str, certainty: Certainty
) -> dict[str, int]:
    """Breadth first from table to table, by a queue."""
    allowed = {
        Certainty.DIRECT: lambda part: Part.DIRECT in part,
        Certainty.INDIRECT: lambda part: Part.DECLARED not in part,
        Certainty.UNSURE: lambda part: True,
    }[certainty]
    layers, queue = {start: 0}, [start]
    for table in queue:
        for (source, target), part in edges.items():
            if source == table and target not in layers and allowed(part):
                layers[target] = layers[table] + 1
                queue.append(target)
    return layers


@given(MANY, DECLARED)
def test_pairs_of_tables_are_those_of_a_walk_from_each_with_the_best_kind(
    statements: list[Statement], declared: list[Statement]
) -> None:
    edges: dict[tuple[str, str], Part] = {}
    for one in statements:
        for name, part in parts_of(one).items():
            edges[name, one.target] = edges.get((name, one.target), Part(0)) | part
    for one in declared:
        edges.setdefault((one.inputs[0], one.target), Part.DECLARED)
    expected: Rows = set()
    for start in {table for pair in edges for table in pair}:
        found = {one: tables_from(edges, start, one) for one in Certainty}
        for table, layer in found[Certainty.UNSURE].items():
            kind = next(one for one in Certainty if table in found[one])
            expected |= {(start, table, layer, kind.name)} if table != start else set()
    assert reported(network_of(statements, declared), columns=False) == expected


@given(MANY)
def test_pairs_of_columns_are_those_of_a_walk_from_each_with_the_best_kind(
    statements: list[Statement],
) -> None:
    network = network_of(statements)
    expected: Rows = set()
    for ref in [network.ref(node) for node in range(len(network))]:
        if ref.column is not None:
            found = {one: walked(statements, ref, one) for one in Certainty}
            for other, layer in found[Certainty.UNSURE].items():
                kind = next(one for one in Certainty if other in found[one])
                expected |= (
                    {(str(ref), str(other), layer, kind.name)}
                    if other.table != ref.table
                    else set()
                )
    assert reported(network, columns=True) == expected
