"""Tags of personal columns are followed along their lineage, and never silently lost or made more
of than they are.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.governance import propagation
from lakechime_dagster.governance.tags import Reach, Tagged, leaks
from lakechime_dagster.lineage.columns import (
    ColumnLineage,
    ColumnRef,
    Kind,
    Source,
    Statement,
    joined,
)
from lakechime_dagster.lineage.network import network_of
from lakechime_dagster.lineage.sql import statements_of_sql
from lakechime_dagster.lineage.sql_query import SqlSchema

EMAIL = ColumnRef("people", "email")
TAGS = {EMAIL: "email"}
Columns = dict[str, list[tuple[Any, ...]]]


def followed(
    tags: Mapping[ColumnRef, str], cleared: Collection[ColumnRef], statements: Iterable[Statement]
) -> tuple[Tagged, ...]:
    return propagation.propagated(network_of(statements), tags, cleared)


def source(name: str, kind: Kind = Kind.IDENTITY, is_masking: bool = False) -> Source:
    table, _, column = name.partition(".")
    return Source(ColumnRef(table, column or None), kind, is_masking)


def write(
    target: str, columns: Columns | None = None, *, opaque: Iterable[str] = (), **fields: object
) -> Statement:
    """A statement whose columns have these sources, or could not be reported."""
    reported = [
        ColumnLineage(column=name, sources=tuple(source(*one) for one in several))
        for name, several in (columns or {}).items()
    ]
    reported += [ColumnLineage(column=name, opaque=("rows of an RDD",)) for name in opaque]
    return Statement(target=target, columns=tuple(reported), **fields)  # type: ignore[arg-type]


def reached(found: Iterable[Tagged]) -> dict[str, Reach]:
    return {str(one.ref): one.reach for one in found if not one.is_source}


def test_values_are_followed_and_what_is_made_of_them() -> None:
    first = write(
        "a",
        {
            "mail": [("people.email", Kind.IDENTITY)],
            "host": [("people.email", Kind.TRANSFORMATION)],
            "last": [("people.email", Kind.AGGREGATION)],
            "hashed": [("people.email", Kind.TRANSFORMATION, True)],
            "many": [("people.email", Kind.AGGREGATION, True)],
            "town": [("people.town", Kind.IDENTITY)],
        },
    )
    second = write(
        "b",
        {
            "mail": [("a.mail", Kind.IDENTITY)],
            "id": [("a.hashed", Kind.IDENTITY)],
            "ids": [("a.hashed", Kind.AGGREGATION, True)],
            "many": [("a.many", Kind.IDENTITY)],
        },
    )
    found = followed(TAGS, (), [second, first])
    assert reached(found) == {
        "a.mail": Reach.PERSONAL,
        "a.host": Reach.DERIVED,
        "a.last": Reach.DERIVED,
        "a.hashed": Reach.PSEUDONYM,
        "b.mail": Reach.PERSONAL,
        "b.id": Reach.PSEUDONYM,
    }
    (mail,) = [one for one in found if str(one.ref) == "b.mail"]
    assert [str(ref) for ref in mail.path] == ["people.email", "a.mail", "b.mail"]


def test_what_decides_is_distinguished_and_goes_no_further() -> None:
    first = write(
        "a",
        {"kind": [("people.email", Kind.CONDITIONAL)]},
        indirect=(source("people.email", Kind.FILTER),),
    )
    second = write("b", {"kind": [("a.kind", Kind.IDENTITY)]})
    assert reached(followed(TAGS, (), [first, second])) == {
        "a.kind": Reach.INDIRECT,
        "a": Reach.INDIRECT,
    }


def test_what_could_not_be_reported_is_unsure_and_goes_on() -> None:
    first = write(
        "a", {"town": [("people.town", Kind.IDENTITY)]}, opaque=["score"], inputs=("people",)
    )
    second = write("b", {"best": [("a.score", Kind.AGGREGATION)]})
    third = write(
        "c",
        {"id": [("people.id", Kind.IDENTITY)]},
        inputs=("people",),
        unknown=("events were lost",),
    )
    fourth = write("d", {"any": [("c.other", Kind.IDENTITY)]})
    found = reached(followed(TAGS, (), [first, second, third, fourth]))
    assert found == {
        "a.score": Reach.UNSURE,
        "b.best": Reach.UNSURE,
        "c": Reach.UNSURE,
        "d.any": Reach.UNSURE,
    }


def test_of_a_part_of_a_column_only_the_whole_of_it_is_sure() -> None:
    tags = {
        ColumnRef("letters", "payload:$.to"): "email",
        ColumnRef("people", "user.email"): "email",
    }
    reported = write(
        "a",
        {
            "copy": [("letters.payload", Kind.IDENTITY)],
            "read": [("letters.payload", Kind.TRANSFORMATION)],
            "user": [("people.user", Kind.IDENTITY)],
        },
    )
    assert reached(followed(tags, (), [reported])) == {
        "a.copy": Reach.PERSONAL,
        "a.read": Reach.UNSURE,
        "a.user": Reach.PERSONAL,
    }


def test_names_that_differ_in_case_alone_are_of_one_column() -> None:
    reported = write("a", {"MAIL": [("people.Email", Kind.IDENTITY)]})
    found = followed(TAGS, (), [reported, write("b", {"mail": [("a.mail", Kind.IDENTITY)]})])
    assert reached(found) == {"a.MAIL": Reach.PERSONAL, "b.mail": Reach.PERSONAL}
    assert leaks(found, [EMAIL, ColumnRef("a", "Mail")], public=(), levels={"a": ()}) == ()


HASHED = [
    ("max(sha2(email, 256))", True),
    ("sha2(max(email), 256)", True),
    ("md5(lower(email))", True),
    ("max(h)", True),
]
COUNTED = [
    ("count(sha2(email, 256))", False),
    ("approx_count_distinct(email)", False),
    ("sha2(count(email), 256)", False),
    ("max(n)", False),
]


@pytest.mark.parametrize(("sql", "is_pseudonym"), HASHED + COUNTED)
def test_a_hash_is_known_again_after_an_aggregate_and_a_count_is_not(
    sql: str, is_pseudonym: bool
) -> None:
    """The greatest of hashes is one of them, the greatest of counts is nobody's."""
    within = "SELECT email, md5(email) AS h, count(email) OVER () AS n FROM people"
    reported = statements_of_sql(
        f"CREATE TABLE lab AS SELECT {sql} AS x FROM ({within})",
        "spark",
        SqlSchema({"people": ("email",)}),
    )
    found = reached(followed(TAGS, (), [replace(one, target="lab") for one in reported]))
    assert found == ({"lab.x": Reach.PSEUDONYM} if is_pseudonym else {})


def test_a_tag_does_not_pass_a_column_that_a_person_has_cleared() -> None:
    first = write("a", {"host": [("people.email", Kind.TRANSFORMATION)]})
    second = write("b", {"host": [("a.host", Kind.IDENTITY)]})
    assert reached(followed(TAGS, [ColumnRef("a", "host")], [first, second])) == {}


def test_untagged_values_and_anything_in_public_tables_are_leaks() -> None:
    reported = [
        write(
            "a",
            {"mail": [("people.email", Kind.IDENTITY)], "known": [("people.email", Kind.IDENTITY)]},
            opaque=["perhaps"],
        ),
        write(
            "open",
            {
                "id": [("people.email", Kind.TRANSFORMATION, True)],
                "sum": [("people.email", Kind.AGGREGATION, True)],
            },
        ),
        write("elsewhere", {"mail": [("people.email", Kind.IDENTITY)]}),
    ]
    tags = TAGS | {ColumnRef("a", "known"): "email"}
    found = leaks(
        followed(tags, (), reported),
        tags,
        public={"open"},
        levels={"people": (), "a": (), "open": ()},
    )
    assert [(str(one.tagged.ref), one.is_public) for one in found] == [
        ("a.mail", False),
        ("open.id", True),
    ]
    assert found[0].remedy == (
        'declare asset=Asset(columns={"mail": personal("email")}) of a, or decide that it is '
        "not personal"
    )


def test_values_in_a_partition_level_are_a_leak_tagged_or_not_and_a_pseudonym_there_is_none() -> (
    None
):
    reported = [
        write(
            "a",
            {
                "Mail": [("people.email", Kind.IDENTITY)],
                "id": [("people.email", Kind.TRANSFORMATION, True)],
            },
            opaque=["perhaps"],
        ),
        write("open", {"mail": [("people.email", Kind.IDENTITY)]}),
    ]
    tags = TAGS | {ColumnRef("a", "Mail"): "email"}
    levels = {"people": (), "a": ("mail", "id", "perhaps"), "open": ("mail",)}
    found = leaks(followed(tags, (), reported), tags, public={"open"}, levels=levels)
    assert [(str(one.tagged.ref), one.is_level) for one in found] == [
        ("a.Mail", True),
        ("open.mail", True),
    ]
    assert "partition by a hash or a mask of it" in found[0].remedy
    assert found[1].remedy.startswith(
        "open.mail is a partition level of a table declared public: leave the column out"
    )


NAMES = st.sampled_from("abcde")
EDGES = st.lists(
    st.tuples(NAMES, NAMES, st.sampled_from([Kind.IDENTITY, Kind.TRANSFORMATION])), max_size=12
)


@given(EDGES)
def test_direct_edges_carry_a_tag_as_far_as_they_lead(edges: list[tuple[str, str, Kind]]) -> None:
    """By a plain closure."""
    statements = [write("t", {target: [(f"t.{origin}", kind)]}) for origin, target, kind in edges]
    expected = {"a"}
    while more := {target for origin, target, _ in edges if origin in expected} - expected:
        expected |= more
    found = followed({ColumnRef("t", "a"): "email"}, (), statements)
    assert {one.ref.column for one in found} == expected
    assert all(one.reach.has_values for one in found)


REFS = st.sampled_from([ColumnRef(table, column) for table in "pq" for column in ("a", "b", "c")])
SOURCES = st.builds(
    Source,
    REFS | st.sampled_from([ColumnRef("p"), ColumnRef("q")]),
    st.sampled_from(Kind),
    st.booleans(),
)
COLUMNS = st.builds(
    lambda column, sources, opaque: ColumnLineage(
        column=column, sources=tuple(sources), opaque=opaque
    ),
    st.sampled_from("abc"),
    st.lists(SOURCES, max_size=3),
    st.sampled_from([(), (), ("rows of an RDD",)]),
)
STATEMENTS = st.builds(
    lambda target, columns, inputs, unknown: Statement(
        target=target, columns=joined(columns), inputs=tuple(inputs), unknown=unknown
    ),
    st.sampled_from("pq"),
    st.lists(COLUMNS, max_size=3),
    st.sets(st.sampled_from("pq")),
    st.sampled_from([(), (), ("lost",)]),
)


def plainly(
    statements: list[Statement], start: ColumnRef, cleared: ColumnRef
) -> dict[ColumnRef, Reach]:
    """By going over all statements again until nothing is better."""
    found, before = {start: Reach.PERSONAL}, None
    while before != found:
        before = dict(found)
        for one in statements:
            for column in one.columns:
                target = ColumnRef(one.target, column.column)
                for source in column.sources:
                    _better(
                        found,
                        target,
                        [_carried(source, reach, ref) for ref, reach in before.items()],
                    )
                _better(
                    found, target, [Reach.UNSURE] if column.opaque and _reads(one, before) else []
                )
            _better(
                found,
                ColumnRef(one.target),
                [Reach.UNSURE] if one.unknown and _reads(one, before) else [],
            )
        found = {ref: reach for ref, reach in found.items() if ref != cleared}
    return found


def _better(found: dict[ColumnRef, Reach], target: ColumnRef, ways: list[Reach | None]) -> None:
    reported = [way for way in ways if way is not None]
    if reported:
        found[target] = min(found.get(target, Reach.INDIRECT), *reported)


def _reads(one: Statement, found: dict[ColumnRef, Reach]) -> bool:
    tables = {
        *one.inputs,
        *(source.ref.table for column in one.columns for source in column.sources),
    }
    return any(ref.table in tables and reach is not Reach.INDIRECT for ref, reach in found.items())


def _carried(source: Source, reach: Reach, ref: ColumnRef) -> Reach | None:
    is_same = source.ref == ref and ref.column is not None
    if (
        reach is Reach.INDIRECT
        or source.ref.table != ref.table
        or not (is_same or None in (source.ref.column, ref.column))
    ):
        return None
    if not source.kind.is_direct:
        return Reach.INDIRECT
    if source.is_masking:
        return None if source.kind is Kind.AGGREGATION else max(reach, Reach.PSEUDONYM)
    if source.kind is Kind.IDENTITY:
        return reach
    return max(reach, Reach.DERIVED if is_same else Reach.UNSURE)


@given(st.lists(STATEMENTS, max_size=4), REFS, REFS)
def test_a_walk_by_layers_comes_where_going_over_all_statements_comes_by_ways_that_there_are(
    statements: list[Statement], start: ColumnRef, other: ColumnRef
) -> None:
    cleared = [other] if other != start else []
    found = followed({start: "email"}, cleared, statements)
    assert {one.ref: one.reach for one in found} == plainly(
        statements, start, cleared[0] if cleared else ColumnRef("none")
    )
    by_ref = {one.ref: one for one in found}
    for one in found:
        assert one.path[0] == start
        assert one.path[-1] == one.ref
        assert all(by_ref[ref].reach <= one.reach for ref in one.path)
