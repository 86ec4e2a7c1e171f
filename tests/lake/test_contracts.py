"""What a contract says of a change at a path: path before type before group, and what cannot be meant is refused."""

from collections.abc import Callable

import pytest

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.tables.events import Change, Contract, EventGroup, Hint, Mode, PathRule, Pin, event_group, event_stream, with_hint
from lakechime_dagster.tables.sources import JsonLines

GAME = event_stream("game", source=JsonLines("in"))
COLUMNS, KINDS = (Change.COLUMN, Change.FIELD), (Change.NUMBER, Change.KIND)


def group(contract: Contract, **types: Contract) -> EventGroup:
    return event_group("shop", GAME, contract=contract, types=types)


def columns(contract: Contract, *paths: str) -> list[Mode]:
    return [contract.mode(Change.FIELD, path) for path in paths]


def test_of_rules_for_paths_the_most_specific_holds_and_what_it_does_not_say_the_next_one_says() -> None:
    contract = Contract(
        columns="freeze",
        kinds="rescue",
        paths={"/a/*": PathRule(columns="evolve", kinds="variant"), "/a/b*": PathRule(columns="rescue"), "/a/b": PathRule(kinds="freeze")},
    )
    assert columns(contract, "/x", "/a", "/a/c", "/a/bc", "/a/b") == [
        Mode.FREEZE,
        Mode.FREEZE,
        Mode.EVOLVE,
        Mode.RESCUE,
        Mode.RESCUE,
    ]
    kinds = [contract.mode(Change.KIND, path) for path in ("/x", "/a/c", "/a/bc", "/a/b")]
    assert kinds == [Mode.RESCUE, Mode.VARIANT, Mode.VARIANT, Mode.FREEZE]


def test_rules_of_a_group_for_paths_hold_for_a_type_with_a_contract_of_its_own_where_that_says_no_more() -> None:
    shared = Contract(
        paths={"/a/*": PathRule(columns="freeze"), "/a/secret": PathRule(columns="discard_value"), "/b": PathRule(kinds="freeze")}
    )
    shop = group(shared, buy=Contract(columns="rescue", paths={"/a/*": PathRule(columns="evolve"), "/x/c": PathRule(kinds="variant")}))
    buy = shop.contract_of("buy")
    assert columns(buy, "/x", "/a/x", "/a/secret") == [Mode.RESCUE, Mode.EVOLVE, Mode.DISCARD_VALUE]
    assert (buy.mode(Change.KIND, "/b"), buy.mode(Change.KIND, "/x/c")) == (Mode.FREEZE, Mode.VARIANT)
    assert columns(shop.contract_of("sell"), "/x", "/a/x", "/a/secret") == [Mode.EVOLVE, Mode.FREEZE, Mode.DISCARD_VALUE]


def test_pins_of_a_group_hold_for_a_type_with_a_contract_of_its_own() -> None:
    shop = event_group(
        "shop",
        GAME,
        contract=Contract(is_double_first=True, pins={"/price": "double", "/id": "string"}),
        types={"buy": Contract(kinds="freeze", pins={"/id": Pin.LONG})},
    )
    buy = shop.contract_of("buy")
    assert (buy.pins, buy.is_double_first, buy.kinds) == ({"/price": Pin.DOUBLE, "/id": Pin.LONG}, True, Mode.FREEZE)


def test_what_a_person_says_holds_against_rules_for_paths_and_excluded_changes() -> None:
    declared = Contract(
        kinds="freeze",
        exclude=["number", "field"],
        paths={"/a": PathRule(columns="freeze", kinds="freeze"), "/b": PathRule(kinds="rescue")},
    )
    shop = group(declared, buy=Contract()).with_hints([Hint(type="buy", of="kinds", says="evolve")])
    for contract in (with_hint(declared, Hint(type="buy", of="kinds", says="evolve")), shop.contract_of("buy")):
        assert [contract.mode(change, path) for change in KINDS for path in ("/a", "/b", "/c")] == [Mode.EVOLVE] * 6
        assert contract.mode(Change.FIELD, "/a") is Mode.FREEZE
    assert with_hint(declared, Hint(type="buy", of="kinds", says="evolve")).mode(Change.FIELD, "/c") is Mode.RESCUE
    assert shop.contract_of("sell").mode(Change.KIND, "/b") is Mode.RESCUE


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        (
            lambda: Contract(paths={"/a*": PathRule(kinds="freeze"), "/*b": PathRule(columns="freeze")}),
            "Contract, paths: '/*b' matches paths that '/a*' matches too, and says as much of them; make one of them longer",
        ),
        (lambda: Contract(paths={"a": PathRule(kinds="freeze")}), "paths: 'a' is no pattern of paths; write such as '/payload/*'"),
        (lambda: PathRule(columns="variant"), "PathRule, columns: 'variant' is of kinds alone"),
        (lambda: Contract(include=["field"], exclude=["field"]), "Contract, exclude: field is included too; leave it out of one of them"),
    ],
)
def test_what_cannot_be_meant_is_refused(declared: Callable[[], object], told: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        declared()
    assert told in str(refused.value)
