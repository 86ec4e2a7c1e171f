"""What becomes of a table's columns when changes bring others, whatever order they come in."""

import random
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.cdc import schema as ddl
from lakechime_dagster.cdc.schema import (
    TEXT,
    Evolution,
    doubled,
    evolved,
    parsed,
    spellings,
    widened,
)
from lakechime_dagster.tables.cdc import Drift
from lakechime_dagster.tables.names import folded

SIMPLE = [
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "boolean",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
]
NUMBERS = ["tinyint", "smallint", "int", "bigint", "float", "double"]
DECIMALS = st.builds(
    lambda whole, scale: f"decimal({max(1, whole + scale)},{scale})",
    st.integers(0, 22),
    st.integers(0, 18),
).filter(lambda one: int(one[8:].split(",")[0]) <= 38)
NAMES = ["a", "b", "c", "d e", "`f", "A"]


def structs(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    fields = st.dictionaries(st.sampled_from(NAMES), inner, min_size=1, max_size=3)
    fields = fields.filter(lambda found: len({name.lower() for name in found}) == len(found))
    return fields.map(
        lambda found: str(ddl.Struct({name: parsed(one) for name, one in found.items()}))
    )


def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        inner.map("array<{}>".format), inner.map("map<string,{}>".format), structs(inner)
    )


TYPES = st.recursive(
    st.one_of(st.sampled_from(SIMPLE), st.sampled_from(NUMBERS), DECIMALS), nested, max_leaves=4
)
SCHEMAS = st.dictionaries(
    st.sampled_from(NAMES), st.one_of(TYPES, st.sampled_from(NUMBERS)), max_size=4
)
TABLES = SCHEMAS.filter(lambda columns: not doubled(columns))


def typed(columns: Mapping[str, str]) -> dict[str, ddl.Type]:
    return {folded(name): parsed(one) for name, one in columns.items()}


def joined(first: str | None, second: str | None) -> str | None:
    return None if first is None or second is None else widened(first, second)


def same(first: str | None, second: str | None) -> bool:
    return first == second if first is None or second is None else parsed(first) == parsed(second)


WIDENED = [
    ("int", "bigint", "bigint"),
    ("bigint", "tinyint", "bigint"),
    ("smallint", "double", "double"),
    ("int", "float", "double"),
    ("float", "double", "double"),
    ("date", "timestamp_ntz", "timestamp_ntz"),
    ("decimal(10,2)", "decimal(8,4)", "decimal(12,4)"),
    ("decimal(10,2)", "decimal(38,2)", "decimal(38,2)"),
    ("int", "decimal(5,2)", "decimal(12,2)"),
    ("decimal(30,4)", "bigint", "decimal(30,4)"),
    ("bigint", "decimal(4,0)", "decimal(20,0)"),
    ("array<int>", "array<bigint>", "array<bigint>"),
    ("map<string,date>", "map<string,timestamp_ntz>", "map<string,timestamp_ntz>"),
    ("struct<`b`:int>", "struct<`a`:date,`b`:bigint>", "struct<`b`:bigint,`a`:date>"),
    ("struct<b:int>", "struct<`b`:int>", "struct<b:int>"),
    ("DECIMAL( 10, 2 )", "decimal(10,2)", "DECIMAL( 10, 2 )"),
    ("variant", "variant", "variant"),
]
CONFLICTS = [
    ("string", "int"),
    ("bigint", "double"),
    ("bigint", "float"),
    ("decimal(10,2)", "double"),
    ("decimal(38,0)", "decimal(38,2)"),
    ("bigint", "decimal(38,19)"),
    ("date", "timestamp"),
    ("timestamp", "timestamp_ntz"),
    ("boolean", "tinyint"),
    ("binary", "string"),
    ("array<int>", "array<string>"),
    ("array<int>", "int"),
    ("map<string,int>", "map<int,int>"),
    ("struct<`a`:int>", "struct<`a`:string>"),
    ("struct<`a`:int>", "struct<`A`:int>"),
]


@pytest.mark.parametrize(("known", "seen", "wider"), WIDENED)
def test_two_types_become_the_least_one_that_holds_both(known: str, seen: str, wider: str) -> None:
    assert widened(known, seen) == wider


@pytest.mark.parametrize(("known", "seen"), CONFLICTS)
def test_types_whose_values_no_type_holds_exactly_are_a_conflict(known: str, seen: str) -> None:
    assert widened(known, seen) is None
    assert widened(seen, known) is None


@given(one=TYPES, two=TYPES, three=TYPES)
def test_the_least_wider_type_is_one_of_a_semilattice(one: str, two: str, three: str) -> None:
    assert widened(one, one) == one
    assert same(widened(one, two), widened(two, one))
    assert same(joined(widened(one, two), three), joined(one, widened(two, three)))


@given(
    known=TABLES,
    seen=st.lists(SCHEMAS, max_size=4),
    policy=st.sampled_from(Drift),
    seed=st.integers(0, 2**32),
)
def test_the_order_in_which_schemas_are_seen_makes_no_difference(
    known: Mapping[str, str], seen: Sequence[Mapping[str, str]], policy: Drift, seed: int
) -> None:
    one, two = (
        evolved(known, seen, policy),
        evolved(known, random.Random(seed).sample(seen, len(seen)), policy),
    )
    assert typed(one.columns) == typed(two.columns)
    assert (one.missing, typed(one.added), typed(one.widened)) == (
        two.missing,
        typed(two.added),
        typed(two.widened),
    )
    assert bool(one.refused) == bool(two.refused)


@given(known=TABLES, seen=st.lists(SCHEMAS, min_size=1, max_size=4), seed=st.integers(0, 2**32))
def test_the_executions_in_which_schemas_are_seen_make_no_difference(
    known: Mapping[str, str], seen: Sequence[Mapping[str, str]], seed: int
) -> None:
    once = evolved(known, seen, Drift.LENIENT)
    cut = random.Random(seed).randrange(len(seen) + 1)
    first = evolved(known, seen[:cut], Drift.LENIENT)
    second = evolved(first.columns, seen[cut:], Drift.LENIENT)
    assert typed(once.columns) == typed(second.columns)


@given(known=TABLES, seen=st.lists(SCHEMAS, max_size=4), policy=st.sampled_from(Drift))
def test_what_fits_a_column_that_was_seen_fits_what_became_of_it(
    known: Mapping[str, str], seen: Sequence[Mapping[str, str]], policy: Drift
) -> None:
    found = evolved(known, seen, policy)
    spelled = spellings(known, seen)
    for name, one in [
        (spelled.get(name, name), one) for schema in (known, *seen) for name, one in schema.items()
    ]:
        if not found.refused:
            assert found.columns[name] == TEXT or same(
                widened(one, found.columns[name]), found.columns[name]
            )
    if found.refused:
        assert found.columns == known


NEW, WIDER, OTHER, MISSING = {"a": "int", "b": "date"}, {"a": "bigint"}, {"a": "string"}, {}


def drifted(seen: Mapping[str, str], policy: Drift) -> Evolution:
    return evolved({"a": "int"}, [seen], policy)


@pytest.mark.parametrize("policy", [Drift.EVOLVE, Drift.LENIENT])
def test_columns_are_added_and_widened_by_the_policies_that_follow(policy: Drift) -> None:
    assert drifted(NEW, policy) == Evolution(columns={"a": "int", "b": "date"}, added={"b": "date"})
    assert drifted(WIDER, policy) == Evolution(columns={"a": "bigint"}, widened={"a": "bigint"})
    assert drifted(MISSING, policy) == Evolution(columns={"a": "int"}, missing=frozenset("a"))


def test_a_column_of_which_no_type_holds_all_values_is_text_and_others_follow() -> None:
    for known, seen in (
        ({"a": "int"}, [{"a": "string"}]),
        ({}, [{"a": "int"}, {"a": "string"}]),
        ({"a": "string"}, [{"a": "int"}]),
    ):
        found = evolved(known, [{**one, "b": "int"} for one in seen], Drift.LENIENT)
        assert (found.columns, found.refused) == ({"a": "string", "b": "int"}, ())
        assert found.texts == {"a": "its values are int and string, which no type but text holds"}


def test_evolve_refuses_a_column_that_would_be_text_and_says_what_to_do() -> None:
    (why,) = evolved({"a": "int"}, [{"a": "string", "b": "int"}], Drift.EVOLVE).refused
    assert why.startswith(
        "column a: its values are int and string, which no type but text holds; declare its type, "
        "leave it out"
    )


def test_a_column_of_the_key_never_becomes_text() -> None:
    found = evolved({"a": "int"}, [{"a": "string"}], Drift.LENIENT, keys=("a",))
    assert found.columns == {"a": "int"}
    assert found.refused[0].startswith("column a of the key: its values are int and string")


@pytest.mark.parametrize("seen", [NEW, WIDER, OTHER, MISSING])
def test_exception_refuses_any_drift(seen: Mapping[str, str]) -> None:
    found = drifted(seen, Drift.EXCEPTION)
    assert found.columns == {"a": "int"}
    assert len(found.refused) == 1
    assert not drifted({"a": "int"}, Drift.EXCEPTION).refused


@pytest.mark.parametrize("policy", Drift)
def test_a_table_that_is_not_there_yet_takes_all_columns_in_their_order(policy: Drift) -> None:
    found = evolved({}, [{"b": "int", "a": "date"}, {"c": "int", "b": "bigint"}], policy)
    assert list(found.columns.items()) == [("b", "bigint"), ("a", "date"), ("c", "int")]
    assert not found.refused


def test_names_that_differ_in_case_alone_are_one_column() -> None:
    found = evolved(
        {"amount": "int"},
        [{"Amount": "bigint", "kapı": "int"}, {"AMOUNT": "int", "KAPI": "int"}],
        Drift.LENIENT,
    )
    assert (found.columns, found.missing) == ({"amount": "bigint", "kapı": "int"}, frozenset())
    assert (doubled(["a", "kapi", "b", "kapı"]), doubled(["maße", "masse"])) == (
        ("kapi", "kapı"),
        (),
    )
    assert evolved({}, [{"amount": "struct<`a`:int,`A`:int>"}], Drift.LENIENT).texts.keys() == {
        "amount"
    }


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "array<int",
        "array<int,int>",
        "map<int>",
        "struct<a>",
        "struct<a:int,a:int>",
        "decimal(2,3)",
        "int>",
        "array<int>>",
    ],
)
def test_words_that_are_no_type_are_named(wrong: str) -> None:
    with pytest.raises(ValueError, match="is no type"):
        parsed(wrong)
