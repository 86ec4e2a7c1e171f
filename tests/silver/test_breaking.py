"""Breaking changes: variant columns, and what contracts and caps keep out, when it comes first, and
who sent it.
"""

import json
from collections.abc import Sequence

import pytest

from lakechime_dagster.silver.event import variation_of
from lakechime_dagster.silver.schema import MAX_BREAKING, KnownType, Prototype, learned
from lakechime_dagster.tables.events import Contract, Pin
from tests.silver.test_schema import event

NEW = KnownType(type="buy", table="shop.buy")
Reported = tuple[str, str, str, str | None]


def prototype(text: str, producer: str | None = None) -> Prototype:
    variation = variation_of(event(text))
    return Prototype(typed_hash=variation.typed_hash, variation=variation, producer=producer)


def after(
    known: KnownType,
    *texts: str,
    contract: Contract | None = None,
    by: Sequence[str | None] = (),
    is_rebuild: bool = False,
) -> tuple[KnownType, list[Reported]]:
    """What is known after an execution, and what it broke."""
    who = [*by, *[None] * (len(texts) - len(by))]
    one = learned(
        known,
        [prototype(text, producer) for text, producer in zip(texts, who, strict=True)],
        contract or Contract(),
        is_rebuild=is_rebuild,
    )
    if one is None:
        return known, []
    reported = [(each.path, each.kind, each.how.value, each.producer) for each in one.breaking]
    return one.known_after(known, known.schema_version + one.is_new_schema), reported


def test_new_columns_and_the_birth_of_a_table_break_nothing() -> None:
    known, reported = after(NEW, '{"a":1,"b":{"c":1}}', '{"a":"x"}')
    assert reported == []
    assert after(known, '{"d":1,"b":{"e":[{"f":1}]}}', '{"a":null,"b":{"c":[]},"g":{}}')[1] == []


def test_a_variant_of_a_column_that_was_there_breaks_and_who_brought_it_is_reported() -> None:
    known, _ = after(NEW, '{"a":1,"b":{"c":1},"d":[{"e":1}]}', by=["web"])
    texts = ['{"a":2}', '{"a":"x"}', '{"a":"x","b":{"c":true}}', '{"d":[{"e":1.5}]}']
    known, reported = after(known, *texts, by=["web", "ios", "tv", None])
    assert sorted(reported) == [
        ("/a", "string", "variant", "ios"),
        ("/b/c", "bool", "variant", "tv"),
        ("/d[]/e", "fraction", "variant", None),
    ]
    assert after(known, '{"a":"y","new":1}', by=["web"])[1] == []


def test_what_a_contract_freezes_breaks_when_it_comes_first() -> None:
    frozen = Contract(columns="freeze", kinds="freeze")
    known, _ = after(NEW, '{"a":1,"o":{"p":1},"l":[1]}', contract=frozen)
    text = '{"a":"x","o":{"q":{"r":1}},"l":["x"],"n":{"m":1},"A":1}'
    known, reported = after(known, text, contract=frozen, by=["tv"])
    assert sorted(reported) == [
        ("/a", "string", "frozen", "tv"),
        ("/l[]", "string", "frozen", "tv"),
        ("/n", "object", "frozen", "tv"),
        ("/o/q", "object", "frozen", "tv"),
    ]
    assert after(known, '{"a":"y","n":{"m":2,"k":1}}', contract=frozen)[1] == []
    assert after(known, '{"a":true}', contract=frozen)[1] == [("/a", "bool", "frozen", None)]


@pytest.mark.parametrize(
    "contract",
    [
        Contract(columns="rescue", kinds="rescue"),
        Contract(columns="discard_row", kinds="discard_value"),
    ],
)
def test_what_a_contract_rescues_or_discards_breaks_nothing(contract: Contract) -> None:
    known, _ = after(NEW, '{"a":1}', contract=contract)
    assert after(known, '{"a":"x","b":1}', contract=contract)[1] == []


def test_what_is_ignored_or_kept_as_text_breaks_nothing() -> None:
    contract = Contract(columns="freeze", kinds="freeze", pins={"/a": Pin.IGNORE, "/b": Pin.JSON})
    known, _ = after(NEW, '{"b":1,"c":1}', contract=contract)
    assert after(known, '{"a":1,"b":{"x":"y"}}', contract=contract)[1] == []


def test_what_has_no_column_for_a_cap_breaks_also_at_the_birth_of_a_table() -> None:
    wide = json.dumps({f"f{number:04}": number for number in range(900)})
    known, reported = after(NEW, wide, by=["web"])
    assert (reported[0], len(reported)) == (("/f0500", "long", "cap", "web"), MAX_BREAKING)
    assert after(NEW, wide, by=["web"], is_rebuild=True)[1] == reported
    assert after(known, '{"f0000":"x","g":{},"f0500":5}')[1] == [("/f0000", "string", "cap", None)]


def test_a_person_who_lets_a_variant_come_breaks_what_was_there_and_nobody_sent_it() -> None:
    frozen = Contract(kinds="freeze")
    known, _ = after(NEW, '{"a":1}', contract=frozen)
    known, _ = after(known, '{"a":"x"}', contract=frozen, by=["ios"])
    assert after(known)[1] == [("/a", "string", "variant", None)]
