"""What contracts do to layouts and rows: rules for paths, changes that are excluded, VARIANT siblings; why a value has no column."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.silver.results import leaves_of, read_back
from lakechime_dagster.silver.schema import Layout, Observed, next_layout
from lakechime_dagster.silver.shape import MAX_VARIANT
from lakechime_dagster.tables.events import Change, Contract, Mode, PathRule
from tests.schema.test_layout import EVENTS, columns_of, event, layout_of, seen, shape, told

RULES = st.builds(
    PathRule,
    columns=st.sampled_from([Mode.EVOLVE, Mode.FREEZE, Mode.RESCUE]),
    kinds=st.sampled_from([Mode.EVOLVE, Mode.FREEZE, Mode.RESCUE, Mode.VARIANT]),
)
CONTRACTS = st.builds(
    Contract,
    columns=st.sampled_from([Mode.EVOLVE, Mode.FREEZE]),
    kinds=st.sampled_from([Mode.EVOLVE, Mode.VARIANT, Mode.FREEZE]),
    paths=st.dictionaries(st.sampled_from(["/a", "/b*", "/a/*", "/a/b", "/A/*"]), RULES),
    exclude=st.lists(st.sampled_from([*Change]), max_size=2),
    is_double_first=st.booleans(),
)


@given(st.lists(EVENTS, min_size=1, max_size=6), CONTRACTS)
def test_whatever_a_contract_says_of_paths_every_leaf_is_read_back_and_layouts_rest(events: list[str], contract: Contract) -> None:
    layout, observed = Layout(), Observed()
    for text in events:
        observed = observed.joined(seen(text))
        layout = next_layout(layout, observed, contract)
        assert next_layout(layout, observed, contract) == layout
        one = shape(text, layout, contract)
        assert read_back(json.loads(one.row), one.rescued_json, layout) == leaves_of(event(text).fields)


FROZEN_BUT = Contract(columns="freeze", kinds="freeze", paths={"/p/*": PathRule(columns="evolve", kinds="evolve")})


def test_columns_and_siblings_are_added_where_a_rule_lets_them_be() -> None:
    events = ['{"a":1,"p":{"x":1}}', '{"a":"s","b":1,"p":{"x":"s","y":{"z":1}}}', '{"p":{"y":{"z":true}}}']
    layout = layout_of(*events, contract=FROZEN_BUT)
    assert columns_of(layout) == {"a": "long", "p": {"x": "long", "x__v_string": "string", "y": {"z": "long", "z__v_bool": "bool"}}}
    assert told(shape(events[1], layout, FROZEN_BUT)) == [("/a", '"s"', "frozen"), ("/b", "1", "frozen")]


def test_what_is_lost_at_a_path_goes_as_the_rule_of_that_path_says() -> None:
    contract = Contract(
        columns="freeze",
        kinds="discard_row",
        paths={"/drop/*": PathRule(columns="discard_value", kinds="discard_value"), "/keep/*": PathRule(columns="rescue", kinds="rescue")},
    )
    layout = layout_of('{"drop":{"a":1},"keep":{"a":1},"a":1}', contract=contract)
    one = shape('{"drop":{"a":"x","b":1},"keep":{"a":"x","b":1},"b":1}', layout, contract)
    assert (told(one), one.discarded, one.is_discarded) == (
        [("/keep/a", '"x"', "mismatch"), ("/keep/b", "1", "unknown"), ("/b", "1", "frozen")],
        2,
        False,
    )
    assert shape('{"a":"x"}', layout, contract).is_discarded


def test_a_frozen_column_is_no_matter_of_what_becomes_of_kinds() -> None:
    contract = Contract(columns="freeze", kinds="discard_row")
    one = shape('{"a":1,"b":1}', layout_of('{"a":1}', contract=contract), contract)
    assert (one.is_discarded, told(one)) == (False, [("/b", "1", "frozen")])


def test_an_object_that_may_come_is_born_with_its_fields() -> None:
    contract = Contract(columns="freeze", paths={"/p": PathRule(columns="evolve")})
    assert columns_of(layout_of('{"a":1}', '{"p":{"x":1}}', '{"p":{"y":1}}', contract=contract)) == {"a": "long", "p": {"x": "long"}}
    sibling = layout_of('{"a":1}', '{"a":{"x":1}}', '{"a":{"y":1}}', contract=Contract(columns="freeze"))
    assert columns_of(sibling) == {"a": "long", "a__v_object": {"x": "long"}}


@pytest.mark.parametrize(
    ("excluded", "columns"),
    [
        ("column", {"a": "long", "o": {"x": "long", "y": "long"}, "a__v_fraction": "fraction", "a__v_string": "string"}),
        ("field", {"a": "long", "o": {"x": "long"}, "a__v_fraction": "fraction", "a__v_string": "string", "b": "long"}),
        ("number", {"a": "long", "o": {"x": "long", "y": "long"}, "a__v_string": "string", "b": "long"}),
        ("kind", {"a": "long", "o": {"x": "long", "y": "long"}, "a__v_fraction": "fraction", "b": "long"}),
    ],
)
def test_an_excluded_change_does_not_come_and_its_values_are_rescued(excluded: str, columns: dict[str, Any]) -> None:
    contract = Contract(exclude=excluded)
    events = ['{"a":1,"o":{"x":1}}', '{"a":1.5}', '{"a":"s"}', '{"b":1}', '{"o":{"y":1}}']
    layout = layout_of(*events, contract=contract)
    assert columns_of(layout) == columns
    lost = [one for text in events for one in told(shape(text, layout, contract))]
    assert [reason for _, _, reason in lost] == ["unknown" if excluded in ("column", "field") else "mismatch"]


def test_one_variant_takes_all_further_kinds_of_a_path() -> None:
    contract = Contract(kinds="variant")
    events = ['{"a":1}', '{"a":"s"}', '{"a":{"b":[1,null,"x"],"c":null}}', '{"a":[1.5]}', '{"a":true}', '{"a":{}}', '{"a":2}']
    layout = layout_of(*events, contract=contract)
    assert columns_of(layout) == {"a": "long", "a__v_variant": "variant"}
    assert [json.loads(shape(text, layout, contract).row) for text in events] == [
        {"a": 1},
        *({"a__v_variant": value} for value in ("s", {"b": [1, None, "x"]}, [1.5], True, {})),
        {"a": 2},
    ]


@pytest.mark.parametrize(
    ("value", "held", "lost"),
    [
        ("9" * 39, None, [("/a", "9" * 39, "overflow")]),
        ("9" * 38, int("9" * 38), []),
        ("[1,1E400]", [1, None], [("/a/1", "1E400", "overflow")]),
        ('"\\ud800"', None, [("/a", '"\\ud800"', "inexact")]),
        ('{"b":"\\ud800","\\ud800":1,"c":2}', {"c": 2}, [("/a/b", '"\\ud800"', "inexact"), ("/a/\ud800", "1", "inexact")]),
        ('{"b":1,"c":{"d/":2,"d/":3},"b":4}', {"c": {"d/": 3}, "b": 4}, [("/a/b", "1", "duplicate"), ("/a/c/d~1", "2", "duplicate")]),
        ('{"b":[' * 60 + "1" + "]}" * 60, ..., [("/a" + "/b/0" * 50, '{"b":[' * 10 + "1" + "]}" * 10, "cap")]),
        (f'"{"x" * MAX_VARIANT}"', None, [("/a", f'"{"x" * MAX_VARIANT}"', "cap")]),
    ],
)
def test_what_a_variant_cannot_hold_is_told(value: str, held: Any, lost: list[tuple[str, str, str]]) -> None:
    contract, text = Contract(kinds="variant"), f'{{"a":{value}}}'
    layout = layout_of('{"a":false}', text, contract=contract)
    one = shape(text, layout, contract)
    assert told(one) == lost
    assert held is ... or json.loads(one.row) == ({} if held is None else {"a__v_variant": held})
    assert read_back(json.loads(one.row), one.rescued_json, layout) == leaves_of(event(text).fields)


def test_a_variant_takes_what_has_no_column_of_its_own() -> None:
    assert columns_of(layout_of('{"a":true,"a":[null]}', contract=Contract(kinds="variant"))) == {"a": "bool", "a__v_variant": "variant"}


def test_siblings_that_are_there_take_their_kinds_before_a_variant() -> None:
    layout = layout_of('{"a":1}', '{"a":"s"}')
    layout = next_layout(layout, seen('{"a":1}', '{"a":"s"}', '{"a":true}'), Contract(kinds="variant"))
    assert columns_of(layout) == {"a": "long", "a__v_string": "string", "a__v_variant": "variant"}
    assert json.loads(shape('{"a":"s"}', layout).row) == {"a__v_string": "s"}
    assert columns_of(next_layout(layout, seen('{"a":1}', '{"a":1.5}', '{"a":true}'), Contract())) == columns_of(layout)


@pytest.mark.parametrize(
    ("known", "value", "reason"),
    [
        ("1", "12345678901234567890", "overflow"),
        ("1", "1E400", "overflow"),
        ("12345678901234567890", "9" * 40, "overflow"),
        ("1.5", "1E400", "overflow"),
        ("1.5", "9" * 40, "mismatch"),
        ("1.5", "1", "mismatch"),
        ("1", "1.5", "mismatch"),
        ("1", '"x"', "mismatch"),
        ('"x"', "9" * 40, "mismatch"),
    ],
)
@pytest.mark.parametrize("mode", [Mode.RESCUE, Mode.FREEZE])
def test_a_number_larger_than_its_column_overflows(known: str, value: str, reason: str, mode: Mode) -> None:
    contract = Contract(kinds=mode)
    layout, text = layout_of(f'{{"a":{known}}}', contract=contract), f'{{"a":{value}}}'
    is_frozen = reason == "mismatch" and mode is Mode.FREEZE
    assert told(shape(text, layout, contract)) == [("/a", value, "frozen" if is_frozen else reason)]


def test_a_number_larger_than_the_elements_of_an_array_overflows() -> None:
    assert told(shape('{"a":[2,12345678901234567890]}', layout_of('{"a":[1]}'))) == [("/a/1", "12345678901234567890", "overflow")]


def test_what_has_no_column_as_the_table_is_full_is_told_so() -> None:
    wide = json.dumps({f"f{number:04}": number for number in range(500)})
    layout = layout_of(wide, '{"g":1}', '{"f0000":"x"}')
    assert told(shape('{"g":1,"h":{"i":[2]},"f0000":"x","j":{},"k":{"l":[null]}}', layout)) == [
        ("/g", "1", "cap"),
        ("/h", '{"i":[2]}', "cap"),
        ("/f0000", '"x"', "cap"),
        ("/k", '{"l":[null]}', "unknown"),
    ]
    frozen = Contract(columns="freeze", kinds="rescue")
    assert [reason for *_, reason in told(shape('{"g":1,"f0000":"x"}', layout, frozen))] == ["frozen", "mismatch"]


def test_what_has_no_column_as_it_lies_too_deep_is_told_so() -> None:
    def nested(levels: int) -> str:
        return '{"a":' * levels + "1" + "}" * levels

    assert told(shape(nested(32), layout_of(nested(32)))) == []
    assert told(shape(nested(33), layout_of(nested(33)))) == [("/a", nested(32), "cap")]
    arrays = '{"a":' + "[" * 32 + "1" + "]" * 32 + "}"
    assert told(shape(arrays, layout_of(arrays)))[0][2] == "cap"
    assert told(shape('{"a":' * 40 + "[null]" + "}" * 40, layout_of('{"b":1}')))[0][2] == "unknown"


def test_a_field_of_an_object_whose_fields_are_ids_is_told_so() -> None:
    contract, many = Contract(kinds="rescue"), json.dumps({"by_id": {str(number): 1 for number in range(201)}})
    layout = layout_of('{"by_id":{"7":1}}', many, contract=contract)
    assert columns_of(layout) == {"by_id": {"7": "long"}}
    assert Layout.from_json(json.loads(json.dumps(layout.to_json()))) == layout
    assert told(shape('{"by_id":{"7":1,"8":2}}', layout, contract)) == [("/by_id/8", "2", "map")]
