"""What a network answers equals what a walk over the statements, one reference at a time, finds."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.lineage.answers import Paths, nodes_of, reached_tables
from lakechime_dagster.lineage.columns import ColumnLineage, ColumnRef, Kind, Source, Statement
from lakechime_dagster.lineage.graph import parts_of
from lakechime_dagster.lineage.network import Certainty, Network, Reached, network_of, reach
from tests.lineage.factories import make_statement, source

TABLES, COLUMNS = "stuvwx", "ab"
REFS = st.builds(ColumnRef, st.sampled_from(TABLES), st.sampled_from([*COLUMNS, None]))
SOURCES = st.builds(
    Source,
    REFS,
    st.sampled_from([Kind.IDENTITY, Kind.AGGREGATION, Kind.FILTER, Kind.CONDITIONAL]),
    st.booleans(),
)
REASONS = st.lists(st.just("rows of an RDD"), max_size=1).map(tuple)
CODE = st.lists(st.just("Python UDF f"), max_size=1).map(tuple)
STATEMENTS = st.builds(
    lambda target, columns, indirect, inputs, unknown, udfs: Statement(
        target=target,
        columns=tuple(columns),
        indirect=tuple(indirect),
        inputs=tuple(inputs),
        unknown=unknown,
        udfs=udfs,
    ),
    st.sampled_from(TABLES),
    st.lists(
        st.builds(
            lambda column, sources, opaque, udfs: ColumnLineage(
                column=column, sources=tuple(sources), opaque=opaque, udfs=udfs
            ),
            st.sampled_from(COLUMNS),
            st.lists(SOURCES, max_size=2),
            REASONS,
            CODE,
        ),
        unique_by=lambda one: one.column,
        max_size=2,
    ),
    st.lists(SOURCES.filter(lambda one: not one.kind.is_direct), max_size=1),
    st.lists(st.sampled_from(TABLES), max_size=1),
    REASONS,
    CODE,
)
MANY = st.lists(STATEMENTS, max_size=7)


def affected(
    statements: Iterable[Statement], ref: ColumnRef, certainty: Certainty
) -> Iterator[ColumnRef]:
    """What a column, or the rows of a data set, is a source of: read from the statements without a
    graph.
    """
    for one in statements:
        rows, several = ColumnRef(one.target), one.columns
        for column in several:
            if any(
                said.ref == ref and (said.kind.is_direct or certainty >= Certainty.INDIRECT)
                for said in column.sources
            ):
                yield ColumnRef(one.target, column.column)
            if certainty >= Certainty.UNSURE and column.opaque and ref.table in parts_of(one):
                yield ColumnRef(one.target, column.column)
        if certainty >= Certainty.INDIRECT and (
            ref in [said.ref for said in one.indirect]
            or (ref.column is None and ref.table in parts_of(one))
        ):
            yield rows
        if certainty >= Certainty.UNSURE and one.unknown and ref.table in parts_of(one):
            yield rows


def walked(
    statements: list[Statement], start: ColumnRef, certainty: Certainty
) -> dict[ColumnRef, int]:
    """Breadth first, by a queue."""
    layers, queue = {start: 0}, [start]
    for ref in queue:
        for other in affected(statements, ref, certainty):
            if other not in layers:
                layers[other] = layers[ref] + 1
                queue.append(other)
    return layers


def by_node(found: Reached) -> dict[int, int]:
    """The layer of each node."""
    return dict(zip(found.nodes.tolist(), found.layers.tolist(), strict=True))


def searched(network: Network, start: ColumnRef, certainty: Certainty) -> dict[ColumnRef, int]:
    found = by_node(reach(network, nodes_of(network, [start])[:1], certainty))
    return {network.ref(one): layer for one, layer in found.items()}


@given(MANY, REFS, st.sampled_from(Certainty))
def test_a_search_by_layers_reaches_what_a_walk_reaches_at_the_same_layers(
    statements: list[Statement], start: ColumnRef, certainty: Certainty
) -> None:
    assert searched(network_of(statements, columns=[start]), start, certainty) == walked(
        statements, start, certainty
    )


@given(MANY, REFS, REFS, st.sampled_from(Certainty))
def test_what_a_column_leads_to_is_led_to_by_it(
    statements: list[Statement], one: ColumnRef, other: ColumnRef, certainty: Certainty
) -> None:
    network = network_of(statements)
    start, end = network.node(one), network.node(other)
    if start is None or end is None or one == other:
        return
    starts, ends = nodes_of(network, [one])[:1], nodes_of(network, [other])[:1]
    along, against = (
        by_node(reach(network, starts, certainty)),
        by_node(reach(network, ends, certainty, upstream=True)),
    )
    rows = int(network.datasets[end])
    found = [
        layer
        for node in {end, rows if certainty >= Certainty.INDIRECT else end}
        if (layer := along.get(node)) is not None
    ]
    assert against.get(start) == min(found, default=None)


@given(MANY, st.lists(REFS, min_size=2, max_size=3), st.sampled_from(Certainty))
def test_the_impact_of_several_columns_is_that_of_each_of_them_together(
    statements: list[Statement], refs: list[ColumnRef], certainty: Certainty
) -> None:
    network = network_of(statements)
    found = reach(network, nodes_of(network, refs), certainty).nodes.tolist()
    together = set(found)
    assert len(together) == len(found)
    assert together == {
        node
        for ref in refs
        for node in reach(network, nodes_of(network, [ref]), certainty).nodes.tolist()
    }


@given(MANY, REFS, st.sampled_from(Certainty), st.booleans())
def test_a_path_has_as_many_executions_as_its_end_has_layers_and_each_leads_on(
    statements: list[Statement], start: ColumnRef, certainty: Certainty, upstream: bool
) -> None:
    network = network_of(statements)
    if network.node(start) is None:
        return
    starts = nodes_of(network, [start])
    found = reach(network, starts, certainty, upstream=upstream)
    ways = Paths(network, found, certainty, upstream=upstream)
    for node, layer in by_node(found).items():
        path = ways.of(node)
        assert path is not None
        assert len(path) == layer
        for edge in path:
            assert edge.target in set(affected(statements, edge.source, certainty))
        for before, after in pairwise(path):
            assert after.source in (before.target, ColumnRef(before.target.table))


@given(MANY, REFS)
def test_each_kind_of_hit_is_distinguished_and_together_they_are_all(
    statements: list[Statement], start: ColumnRef
) -> None:
    network = network_of(statements)
    whole = {hit.table: hit.certainty for hit in reached_tables(network, [start]).tables}
    for kind in Certainty:
        found = {hit.table for hit in reached_tables(network, [start], kind=kind).tables}
        assert found == {table for table, certainty in whole.items() if certainty == kind}


LAKE = (
    make_statement(
        "silver.flights",
        delay="bronze.flights.dep_delay",
        wind="bronze.weather.wind",
        inputs=("bronze.flights",),
    ),
    make_statement(
        "gold.daily",
        mean=source("silver.flights.delay", Kind.AGGREGATION),
        indirect=(source("silver.flights.carrier", Kind.GROUP_BY),),
    ),
    make_statement("gold.guess", opaque={"guess": "rows of an RDD"}, inputs=("silver.flights",)),
    make_statement("dash.delays", mean="gold.daily.mean"),
)


def reported(refs: list[ColumnRef], **options: object) -> list[str]:
    found = reached_tables(network_of(LAKE), refs, **options)  # pyright: ignore[reportArgumentType]
    return [f"{one.layer} {one.table} {one.certainty.name}" for one in found.tables]


def test_values_what_decides_and_what_cannot_be_reported_are_apart() -> None:
    assert reported([ColumnRef("bronze.flights", "dep_delay")]) == [
        "1 silver.flights DIRECT",
        "2 gold.daily DIRECT",
        "2 gold.guess UNSURE",
        "3 dash.delays DIRECT",
    ]
    assert reported([ColumnRef("silver.flights", "carrier")]) == [
        "1 gold.daily INDIRECT",
        "1 gold.guess UNSURE",
        "2 dash.delays INDIRECT",
    ]
    assert reported([ColumnRef("bronze.weather", "wind")], kind=Certainty.DIRECT) == [
        "1 silver.flights DIRECT"
    ]


def test_what_code_makes_of_its_arguments_comes_from_nothing_else_that_is_read() -> None:
    score = source("silver.flights.delay", Kind.TRANSFORMATION)
    wind = source("bronze.weather.wind", Kind.FILTER)
    statement = make_statement(
        "gold.scores",
        score=score,
        indirect=(wind,),
        through={"score": "Python UDF score"},
        udfs=("Python UDF is_calm",),
        inputs=("bronze.carriers",),
    )
    network = network_of([statement])

    def hit(name: str) -> list[str]:
        found = reached_tables(network, [ColumnRef(*name.rsplit(".", 1))]).tables
        return [
            f"{one.table}.{column.name} {column.certainty.name}"
            for one in found
            for column in one.columns
        ] or [f"{one.table} {one.certainty.name}" for one in found]

    assert hit("silver.flights.delay") == ["gold.scores.score DIRECT"]
    assert hit("bronze.weather.wind")[0].endswith("INDIRECT")
    assert [
        hit(name)
        for name in ("silver.flights.carrier", "bronze.weather.rain", "bronze.carriers.name")
    ] == [[], [], []]


def test_a_hit_reports_its_columns_and_a_shortest_path() -> None:
    found = reached_tables(network_of(LAKE), [ColumnRef("bronze.flights", "dep_delay")])
    dash = next(one for one in found.tables if one.table == "dash.delays")
    assert [(one.name, one.certainty, one.layer) for one in dash.columns] == [
        ("mean", Certainty.DIRECT, 3)
    ]
    assert [f"{edge.source} {'+'.join(edge.kinds)} {edge.target}" for edge in dash.path] == [
        "bronze.flights.dep_delay identity silver.flights.delay",
        "silver.flights.delay aggregation gold.daily.mean",
        "gold.daily.mean identity dash.delays.mean",
    ]


def test_declared_inputs_are_unsure_until_a_run_reported_them() -> None:
    declared = [
        Statement(target="gold.new", inputs=("gold.daily",)),
        Statement(target="gold.daily", inputs=("silver.flights",)),
    ]
    found = reached_tables(network_of(LAKE, declared), [ColumnRef("silver.flights", "delay")])
    new = next(one for one in found.tables if one.table == "gold.new")
    assert (new.certainty, new.layer, [edge.kinds for edge in new.path][-1]) == (
        Certainty.UNSURE,
        2,
        ("declared",),
    )
    assert (
        next(one for one in found.tables if one.table == "gold.daily").certainty == Certainty.DIRECT
    )


def test_a_planned_statement_counts_until_a_run_reported_its_target() -> None:
    planned = [
        make_statement("gold.new", a="gold.daily.mean"),
        make_statement("gold.daily", mean="silver.flights.planned"),
    ]
    network = network_of(LAKE, planned)
    found = reached_tables(network, [ColumnRef("gold.daily", "mean")])
    assert [(one.table, one.certainty.name) for one in found.tables] == [
        ("dash.delays", "DIRECT"),
        ("gold.new", "DIRECT"),
    ]
    assert network.node(ColumnRef("silver.flights", "planned")) is None
