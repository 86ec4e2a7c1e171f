"""Schemas grow by what comes, in whatever order, and lose nothing."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.silver.event import (
    JsonEvent,
    Kind,
    Variation,
    event_of,
    field_path,
    variation_of,
)
from lakechime_dagster.silver.results import leaves_of, read_back
from lakechime_dagster.silver.schema import Column, Holds, TypeSchema, names_of, next_schema
from lakechime_dagster.silver.shape import Shaped, covers, shaped
from lakechime_dagster.tables.events import Contract, Mode, Pin

NAMES = st.sampled_from(
    ["a", "A", "b", "_a", "a b", "", "a__v_string", "a/b", "é", "ſ", "s", "S", "ı", "i", "İ"]
)
NUMBERS = st.sampled_from(
    ["0", "-1", "9007199254740993", "12345678901234567890", "9" * 45, "1.5", "1e3", "1E400", "-0.0"]
)
SCALARS = st.sampled_from(["null", "true", '"x"', '""', '"\\ud800"', '"ü"']) | NUMBERS
TEXTS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda parts: f"[{','.join(parts)}]")
        | st.lists(st.tuples(NAMES, inner), max_size=4).map(
            lambda parts: f"{{{','.join(f'{json.dumps(name)}:{value}' for name, value in parts)}}}"
        )
    ),
    max_leaves=10,
)
EVENTS = st.lists(st.tuples(NAMES, TEXTS), max_size=5).map(
    lambda parts: f"{{{','.join(f'{json.dumps(name)}:{value}' for name, value in parts)}}}"
)
CONTRACTS = st.builds(
    Contract,
    columns=st.sampled_from([Mode.EVOLVE, Mode.FREEZE, Mode.RESCUE]),
    kinds=st.sampled_from([Mode.EVOLVE, Mode.FREEZE, Mode.RESCUE]),
    is_double_first=st.booleans(),
    pins=st.dictionaries(
        NAMES.map(lambda name: field_path("", name)),
        st.sampled_from([pin for pin in Pin if pin is not Pin.IGNORE]),
    ),
)


def event(text: str) -> JsonEvent:
    found = event_of(text)
    assert isinstance(found, JsonEvent), found
    return found


def seen(*texts: str) -> Variation:
    return Variation(
        frozenset[tuple[str, Kind]]().union(*(variation_of(event(text)).kinds for text in texts))
    )


def schema_of(*texts: str, contract: Contract | None = None) -> TypeSchema:
    """The schema after these events, each of which came alone."""
    schema = TypeSchema()
    for at in range(len(texts)):
        schema = next_schema(schema, seen(*texts[: at + 1]), contract or Contract())
    return schema


def shape(text: str, schema: TypeSchema, contract: Contract | None = None) -> Shaped:
    return shaped(event(text), schema, contract or Contract())


def reported(one: Shaped) -> list[tuple[str, str, str]]:
    return [(rescued.pointer, rescued.text, rescued.reason.value) for rescued in one.rescued]


def columns_of(schema: TypeSchema) -> dict[str, Any]:
    def shown(column: Column) -> Any:
        if column.holds is Holds.OBJECT:
            return {one.name: shown(one) for one in column.fields}
        return [shown(column.element)] if column.element else str(column.holds)

    return {column.name: shown(column) for column in schema.columns}


@given(st.lists(EVENTS, min_size=1, max_size=6), CONTRACTS, st.data())
def test_every_leaf_of_every_event_is_read_back_however_events_are_split_and_ordered(
    events: list[str], contract: Contract, data: st.DataObject
) -> None:
    ordered, schema, at = data.draw(st.permutations(events)), TypeSchema(), 0
    while at < len(ordered):
        end = data.draw(st.integers(at + 1, len(ordered)))
        batch, at = ordered[at:end], end
        schema = next_schema(schema, seen(*ordered[:end]), contract)
        for text in batch:
            one = shape(text, schema, contract)
            assert read_back(json.loads(one.row), one.rescued_json, schema) == leaves_of(
                event(text).fields
            )


@given(st.lists(EVENTS, max_size=6), CONTRACTS, st.randoms(use_true_random=False))
def test_a_rebuilt_table_is_the_same_in_any_order(
    events: list[str], contract: Contract, random: Random
) -> None:
    again = random.sample(events, len(events))
    assert next_schema(TypeSchema(), seen(*again), contract) == next_schema(
        TypeSchema(), seen(*events), contract
    )


def _is_extended(before: tuple[Column, ...], after: tuple[Column, ...]) -> bool:
    return len(before) <= len(after) and all(
        _is_grown(one, other) for one, other in zip(before, after, strict=False)
    )


def _is_grown(before: Column, after: Column) -> bool:
    if (before.name, before.field, before.holds, before.is_variant) != (
        after.name,
        after.field,
        after.holds,
        after.is_variant,
    ):
        return False
    elements = before.element is None or (
        after.element is not None and _is_grown(before.element, after.element)
    )
    return elements and _is_extended(before.fields, after.fields)


@given(st.lists(EVENTS, max_size=5), CONTRACTS)
def test_a_schema_only_grows_and_rests_when_nothing_is_new(
    events: list[str], contract: Contract
) -> None:
    schema = TypeSchema()
    for at in range(len(events)):
        observed = seen(*events[: at + 1])
        after = next_schema(schema, observed, contract)
        assert _is_extended(schema.columns, after.columns)
        assert next_schema(after, observed, contract) == after
        assert TypeSchema.from_json(json.loads(json.dumps(after.to_json()))) == after
        schema = after


@given(st.lists(EVENTS, min_size=1, max_size=5), EVENTS, CONTRACTS)
def test_what_is_covered_is_all_in_the_columns_of_its_fields(
    events: list[str], text: str, contract: Contract
) -> None:
    schema = next_schema(TypeSchema(), seen(*events), contract)
    one = event(text)
    if covers(schema, variation_of(one), sorted(one.flags)):
        row = shaped(one, schema, contract)
        assert not row.rescued
        assert read_back(_by_field(json.loads(text), schema.columns), None, schema) == leaves_of(
            one.fields
        )


def _by_field(value: dict[str, Any], columns: tuple[Column, ...]) -> dict[str, Any]:
    """What a reader gives that knows the columns of fields alone, and takes each value as its
    column's type.
    """
    bare = {column.field: column for column in columns if not column.is_variant}
    return {
        bare[name].name: _native(one, bare[name]) for name, one in value.items() if name in bare
    }


def _native(value: Any, column: Column) -> Any:
    if value is None:
        return None
    match column.holds:
        case Holds.OBJECT:
            return _by_field(value, column.fields)
        case Holds.ARRAY:
            assert column.element is not None
            return [_native(one, column.element) for one in value]
        case _:
            return value


@pytest.mark.parametrize(
    ("events", "columns"),
    [
        (['{"a":1}'], {"a": "long"}),
        (['{"a":1}', '{"a":"x"}'], {"a": "long", "a__v_string": "string"}),
        (['{"a":1}', '{"a":1.5}'], {"a": "long", "a__v_fraction": "fraction"}),
        (['{"a":12345678901234567890}', '{"a":1}'], {"a": "bigint"}),
        (['{"a":null}', '{"a":[]}', '{"a":{}}'], {}),
        (['{"a":{"b":1}}', '{"a":{"c":[1]}}'], {"a": {"b": "long", "c": ["long"]}}),
        (['{"a":[{"b":1}]}', '{"a":[{"b":"x"}]}'], {"a": [{"b": "long", "b__v_string": "string"}]}),
        (['{"a":[1]}', '{"a":["x"]}'], {"a": ["long"]}),
        (['{"a":[12]}', '{"a":[55.5]}'], {"a": ["long"], "a__v_array_double": ["double"]}),
        (
            ['{"a":[55.5]}', '{"a":[null,12]}', '{"a":[1,5.5]}'],
            {"a": ["fraction"], "a__v_array_double": ["double"]},
        ),
        (
            ['{"a":[[[12]]]}', '{"a":[[],[[55.5]]]}'],
            {"a": [[["long"]]], "a__v_array_double": [[["double"]]]},
        ),
        (['{"a":[12]}', '{"a":[12345678901234567890]}'], {"a": ["long"]}),
        (['{"a":1,"A":2}'], {"A": "long"}),
        (['{"kapi":1,"kapı":2,"İ":1,"i":2}'], {"kapi": "long", "i": "long"}),
        (['{"maße":1,"masse":2}'], {"masse": "long", "maße": "long"}),
        (['{"a":[12,55.5]}'], {"a": ["double"]}),
        (['{"a":[1,12345678901234567890]}'], {"a": ["bigint"]}),
        (['{"a":[{"b":null},"x"]}'], {"a": ["string"]}),
        (['{"a":[' + "[" * 40 + "1" + "]" * 40 + ',{"b":1}]}'], {"a": [{"b": "long"}]}),
        (['{"a":[{"b":null}]}', '{"a":[{"b":1}]}'], {"a": [{"b": "long"}]}),
        (['{"_src":1,"a b":2}'], {"_x5f_src": "long", "a_x20_b": "long"}),
    ],
)
def test_columns_of(events: list[str], columns: dict[str, Any]) -> None:
    assert columns_of(schema_of(*events)) == columns


@pytest.mark.parametrize(
    ("text", "known", "rescued"),
    [
        ('{"a":"x"}', '{"a":1}', [("/a", '"x"', "mismatch")]),
        ('{"a":1,"a":2}', '{"a":1}', [("/a", "1", "duplicate")]),
        ('{"A":1.50}', '{"a":1}', [("/A", "1.50", "case")]),
        ('{"İ":1}', '{"i":1}', [("/İ", "1", "case")]),
        ('{"maße":1}', '{"masse":1}', [("/maße", "1", "unknown")]),
        ('{"a":"\\ud800"}', '{"a":"x"}', [("/a", '"\\ud800"', "inexact")]),
        ('{"a":[1,"x",2]}', '{"a":[1]}', [("/a/1", '"x"', "mismatch")]),
        (
            '{"a":[1,"x",2.5]}',
            '{"a":[1]}',
            [("/a/1", '"x"', "mismatch"), ("/a/2", "2.5", "mismatch")],
        ),
        ('{"a":{"b/~":1}}', '{"a":{"c":1}}', [("/a/b~1~0", "1", "unknown")]),
        ('{"a":null}', '{"b":1}', []),
        ('{"a":[],"b":{},"c":{"d":[],"e":{}},"f":{"b":{}}}', '{"f":{"a":1}}', []),
        (
            '{"a":[],"b":{}}',
            '{"a":"x","b":[1]}',
            [("/a", "[]", "mismatch"), ("/b", "{}", "mismatch")],
        ),
        (
            '{"A":[],"b":[[]],"c":[null]}',
            '{"a":1}',
            [("/b", "[[]]", "unknown"), ("/c", "[null]", "unknown")],
        ),
        (
            '{"a":[12,9007199254740993,{}]}',
            '{"a":[1,1.5]}',
            [("/a/1", "9007199254740993", "inexact"), ("/a/2", "{}", "mismatch")],
        ),
        ('{"a\\ud800":1}', '{"a":1}', [("/a\ud800", "1", "inexact")]),
    ],
)
def test_what_no_column_takes_is_rescued_with_its_pointer_and_reason(
    text: str, known: str, rescued: list[tuple[str, str, str]]
) -> None:
    assert reported(shape(text, schema_of(known))) == rescued


def test_a_whole_number_is_in_a_double_only_where_it_is_that_number() -> None:
    contract = Contract(is_double_first=True)
    schema = schema_of('{"a":1}', contract=contract)
    assert columns_of(schema) == {"a": "double"}
    assert reported(shape('{"a":9007199254740992}', schema, contract)) == []
    assert reported(shape('{"a":9007199254740993}', schema, contract)) == [
        ("/a", "9007199254740993", "inexact")
    ]


def test_a_pinned_path_has_its_type_from_birth_and_an_ignored_one_no_column() -> None:
    contract = Contract(pins={"/a": Pin.DOUBLE, "/b": Pin.IGNORE, "/c": Pin.JSON})
    schema = schema_of('{"a":1,"b":1,"c":{"17":1}}', contract=contract)
    assert columns_of(schema) == {"a": "double", "c": "json"}
    one = shape('{"b":5,"c":{"18":[ 1.0 ]}}', schema, contract)
    assert (json.loads(one.row), reported(one), one.discarded) == ({"c": '{"18":[1.0]}'}, [], 1)


def test_a_column_that_is_there_takes_its_values_though_they_are_ignored_by_now() -> None:
    schema = schema_of('{"a":1,"b":{"c":1}}')
    ignoring = Contract(pins={"/a": Pin.IGNORE, "/b/c": Pin.IGNORE, "/b/d": Pin.IGNORE})
    one = shape('{"a":2,"b":{"c":3,"d":4},"new":5}', schema, ignoring)
    assert (json.loads(one.row), reported(one), one.discarded) == (
        {"a": 2, "b": {"c": 3}},
        [("/new", "5", "unknown")],
        1,
    )


def test_a_contract_says_how_many_columns_there_are() -> None:
    contract, wide = Contract(max_columns=2), '{"a":1,"b":2,"c":3}'
    schema = schema_of(wide, contract=contract)
    assert columns_of(schema) == {"a": "long", "b": "long"}
    assert reported(shape(wide, schema, contract)) == [("/c", "3", "cap")]
    assert Contract(kinds="rescue").within(contract).column_cap == 2
    assert (
        schema_of(
            json.dumps({f"f{number}": number for number in range(700)}),
            contract=Contract(max_columns=700),
        ).leaves
        == 700
    )
    with pytest.raises(DeclarationError, match="max_columns"):
        Contract(max_columns=0)


def test_names_of_a_path_are_those_of_its_fields() -> None:
    assert names_of(field_path("/a[]", "b/~[]")) == ("a", None, "b/~[]")
    assert (names_of(""), names_of("/"), names_of("/a[][]")) == ((), ("",), ("a", None, None))


def test_each_array_of_numbers_is_in_one_column_whole() -> None:
    """As a single number is: of an array with whole numbers and fractions no part is elsewhere."""
    schema = schema_of('{"a":[12]}', '{"a":[55.5]}')
    rows = [
        shape(text, schema)
        for text in ('{"a":[12,7]}', '{"a":[55.5]}', '{"a":[12,null,55.5]}', '{"a":[]}')
    ]
    assert [one.row for one in rows] == [
        '{"a":[12,7]}',
        '{"a__v_array_double":[55.5]}',
        '{"a__v_array_double":[12,null,55.5]}',
        '{"a":[]}',
    ]
    assert not any(one.rescued for one in rows)
    frozen = schema_of('{"a":[12]}', '{"a":[55.5]}', contract=Contract(kinds="freeze"))
    assert columns_of(frozen) == {"a": ["long"]}
