"""A producer who has brought as many columns as he may brings no more, and loses nothing; others are as if he were not there."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.lake.contracts import Contract, Mode, Pin
from lakechime_dagster.schema.kinds import Kind
from lakechime_dagster.schema.layout import Layout
from lakechime_dagster.schema.leaves import leaves_of, read_back
from lakechime_dagster.schema.observed import Observed
from lakechime_dagster.schema.producers import Accounts, Allotted, Brought, allotted
from lakechime_dagster.schema.shape import shaped
from lakechime_dagster.schema.variation import variation_of
from tests.schema.test_layout import CONTRACTS, EVENTS, columns_of, event, layout_of, seen

PRODUCERS = st.sampled_from(["a", "b", ""])


class Type:
    """A type as steps grow it, each with the events that some producers send."""

    def __init__(self, cap: int | None, contract: Contract | None = None) -> None:
        self.cap, self.contract = cap, contract or Contract()
        self.layout, self.observed, self.withheld = Layout(), Observed(), dict[Any, str]()
        self.brought: dict[str, Brought] = {}

    def step(self, *events: tuple[str, str]) -> Allotted:
        """What a step does that finds these events, each with its producer before it."""
        self.observed = self.observed.joined(seen(*(text for _, text in events)))
        columns = {who: one.columns for who, one in self.brought.items()}
        sent = [(variation_of(event(text)), [who]) for who, text in events]
        accounts = Accounts(cap=self.cap, columns=columns, sent=sent)
        done = allotted(self.layout, self.observed, self.contract, self.withheld, accounts)
        self.layout, self.withheld = done.layout, dict(done.withheld)
        for who, one in done.brought.items():
            self.brought[who] = self.brought.get(who, Brought()) + one
        return done

    def rescued(self, text: str) -> list[tuple[str, str]]:
        found = shaped(event(text), self.layout, self.contract, frozenset(self.withheld))
        return [(one.pointer, one.reason.value) for one in found.rescued]

    @property
    def columns(self) -> Mapping[str, Any]:
        return columns_of(self.layout)


def test_a_producer_at_his_cap_brings_no_column_until_another_one_sends_the_path() -> None:
    kind = Type(cap=2)
    done = kind.step(("a", '{"p":1,"q":1,"r":1}'), ("b", '{"s":1}'))
    assert done.brought == {"a": Brought(columns=2), "b": Brought(columns=1)}
    assert (kind.columns, done.withheld) == ({"p": "long", "q": "long", "s": "long"}, {("/r", Kind.LONG): "a"})
    assert kind.rescued('{"r":5,"t":1}') == [("/r", "producer_cap"), ("/t", "unknown")]
    assert kind.step(("a", '{"r":2}')).layout == done.layout
    assert kind.step(("b", '{"r":3}')).brought == {"b": Brought(columns=1)}
    assert (kind.columns["r"], kind.withheld, kind.rescued('{"r":5}')) == ("long", {}, [])


def test_a_path_that_two_send_at_once_is_on_the_account_of_who_has_room() -> None:
    kind = Type(cap=1)
    assert kind.step(("a", '{"p":1,"q":1}'), ("b", '{"q":1}')).brought == {"a": Brought(columns=1), "b": Brought(columns=1)}
    assert kind.withheld == {}


def test_a_sibling_is_a_column_and_a_conflict_of_who_sends_the_further_kind() -> None:
    kind = Type(cap=2)
    kind.step(("a", '{"p":1,"q":1}'), ("b", '{"s":1}'))
    done = kind.step(("a", '{"p":"x"}'), ("b", '{"q":{"c":1}}'), ("b", '{"p":1}'))
    assert done.brought == {"b": Brought(columns=1, conflicts=1)}
    assert kind.columns == {"p": "long", "q": "long", "s": "long", "q__v_object": {"c": "long"}}
    assert done.withheld == {("/p", Kind.STRING): "a"}
    assert kind.rescued('{"p":"y","q":{"c":1}}') == [("/p", "producer_cap")]


def test_who_sends_other_kinds_of_a_path_is_not_hindered() -> None:
    kind = Type(cap=1)
    kind.step(("a", '{"p":1}'))
    kind.step(("a", '{"q":1,"r":[1]}'), ("b", '{"q":{"c":1}}'))
    assert (kind.columns, kind.rescued('{"q":5}')) == ({"p": "long", "q": {"c": "long"}}, [("/q", "producer_cap")])
    assert kind.rescued('{"r":[1,2]}') == [("/r", "producer_cap")]


def test_a_pinned_path_gets_its_column_on_nobodys_account() -> None:
    kind = Type(cap=1)
    kind.step(("a", '{"p":1,"q":1}'))
    kind.contract = Contract(pins={"/q": Pin.DOUBLE})
    assert kind.step().brought == {}
    assert (kind.columns, kind.withheld) == ({"p": "long", "q": "double"}, {})


def test_without_a_cap_all_come_and_are_counted() -> None:
    kind = Type(cap=1)
    kind.step(("a", '{"p":1,"q":1,"r":1}'))
    kind.cap = None
    kind.step()
    assert kind.columns == {"p": "long", "q": "long", "r": "long"}
    assert Type(cap=None).step(("a", '{"p":1,"q":{"r":1}}')).brought == {"a": Brought(columns=2)}


def test_what_no_contract_lets_in_is_on_no_account() -> None:
    kind = Type(cap=1, contract=Contract(columns=Mode.FREEZE))
    kind.step(("a", '{"p":1}'))
    assert kind.step(("a", '{"q":1}')).withheld == {}
    assert kind.rescued('{"q":1}') == [("/q", "frozen")]


def test_an_object_whose_fields_are_ids_is_one_column() -> None:
    kind = Type(cap=1)
    many = json.dumps({"by_id": {str(number): 1 for number in range(201)}, "z": 1})
    assert kind.step(("a", many)).brought == {"a": Brought(columns=1)}
    assert (kind.columns, kind.rescued(many)) == ({"by_id": "json"}, [("/z", "producer_cap")])


def test_columns_that_one_has_no_room_for_leave_theirs_to_others() -> None:
    kind = Type(cap=300)
    wide = [json.dumps({f"{name}{number:03}": 1 for number in range(size)}) for name, size in (("a", 600), ("b", 150))]
    kind.step(("a", wide[0]), ("b", wide[1]))
    assert {who: one.columns for who, one in kind.brought.items()} == {"a": 300, "b": 150}
    assert (kind.layout.leaves, len(kind.withheld)) == (450, 300)


@given(st.lists(st.lists(st.tuples(PRODUCERS, EVENTS), min_size=1, max_size=3), min_size=1, max_size=4), CONTRACTS, st.integers(1, 4))
def test_every_leaf_is_read_back_and_nobody_brings_more_than_he_may(
    steps: Sequence[Sequence[tuple[str, str]]], contract: Contract, cap: int
) -> None:
    kind = Type(cap, contract)
    for events in steps:
        before = kind.layout
        done = kind.step(*events)
        assert all(one.columns <= cap for one in kind.brought.values())
        columns = {who: one.columns for who, one in kind.brought.items()}
        rest = allotted(done.layout, kind.observed, contract, done.withheld, Accounts(cap=cap, columns=columns))
        assert rest == Allotted(layout=done.layout, withheld=done.withheld, brought={})
        assert len(kind.layout.columns) >= len(before.columns)
        for _, text in events:
            row = shaped(event(text), kind.layout, contract, frozenset(kind.withheld))
            assert read_back(json.loads(row.row), row.rescued_json, kind.layout) == leaves_of(event(text).fields)


@given(st.lists(st.tuples(PRODUCERS, EVENTS), max_size=5), CONTRACTS)
def test_a_cap_that_nobody_meets_changes_no_layout(events: Sequence[tuple[str, str]], contract: Contract) -> None:
    kind = Type(500, contract)
    for one in events:
        kind.step(one)
    assert (kind.layout, kind.withheld) == (layout_of(*(text for _, text in events), contract=contract), {})


@pytest.mark.parametrize("cap", [1, 2, None])
def test_a_step_done_again_brings_nothing(cap: int | None) -> None:
    kind = Type(cap)
    events = [("a", '{"p":1,"q":"x","r":[{"s":1}]}'), ("b", '{"p":"x"}')]
    first = kind.step(*events)
    again = kind.step(*events)
    assert (again.layout, again.withheld, again.brought) == (first.layout, first.withheld, {})
