"""Subjects of access requests, the places where they are looked for, and where they are not
found.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.governance.requests import (
    Searched,
    SubjectsRefusedError,
    TaggedPath,
    out_of_reach,
    read_subjects,
    searched_tables,
)
from lakechime_dagster.governance.tags import Reach, Tagged
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.tables.cdc import CDCMerge, SourceSchema, cdc_table
from lakechime_dagster.tables.databases import Debezium
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Asset, personal
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.tables.tables import SourceTable

CATEGORIES = ("email", "customer")


def test_a_line_has_values_by_category_and_is_known_by_its_number() -> None:
    lines = [b'{"email": "ann@example.com", "customer": 17}\n', b"\n", b'{"customer": "x y"}']
    found = read_subjects(lines, CATEGORIES)
    assert [(one.line, one.values) for one in found] == [
        (1, (("customer", "17"), ("email", "ann@example.com"))),
        (3, (("customer", "x y"),)),
    ]
    assert "ann" not in repr(found)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"SECRET", "is no JSON"),
        (b'"SECRET"', "is no JSON object"),
        (b"{}", "is no JSON object"),
        (
            b'{"SECRET": "email"}',
            (
                "has a category of which no column is declared or decided to be; the lake has "
                "customer, email"
            ),
        ),
        (b'{"email": "SECRET", "email": "b"}', "has a category twice"),
        (b'{"email": ["SECRET"]}', "is neither a text nor a whole number"),
        (b'{"email": 1.5}', "is neither a text nor a whole number"),
        (b'{"email": true}', "is neither a text nor a whole number"),
        (b'{"email": " "}', "has an empty value"),
        (b'{"email": "SECRET\\u0000"}', "a character that no table holds"),
        (b'{"email": "SECRET\\ud800"}', "a character that no table holds"),
        (b'{"email": "SECRET\xff"}', "is no UTF-8"),
        (b'{"email": "' + b"x" * 70_000 + b'"}', "more than 65,536 bytes"),
        (b"[" * 10_000, "is no JSON"),
        (b'{"email": ' + b"1" * 5_000 + b"}", "is no JSON"),
    ],
)
def test_a_line_that_is_no_subject_is_named_by_its_number_and_nobody_is_looked_for(
    line: bytes, why: str
) -> None:
    with pytest.raises(SubjectsRefusedError) as refused:
        read_subjects([b'{"email": "a@b.c"}', line], CATEGORIES)
    assert "line 2 " in str(refused.value)
    assert why in str(refused.value)
    assert "SECRET" not in str(refused.value)
    assert refused.value.__cause__ is None


@given(
    st.dictionaries(
        st.sampled_from(["email", "customer", "fax"]),
        st.text(min_size=1) | st.integers() | st.floats(),
        max_size=3,
    )
)
def test_a_line_gives_just_its_values_or_a_message_without_them(values: dict[str, object]) -> None:
    marked = {
        name: f"@@{value}" if isinstance(value, str) else value for name, value in values.items()
    }
    is_subject = (
        bool(values)
        and "fax" not in values
        and not any(isinstance(one, float) for one in values.values())
    )
    is_whole = not any(isinstance(one, str) and "\0" in one for one in values.values())
    if is_subject and is_whole:
        (found,) = read_subjects([json.dumps(marked).encode()], CATEGORIES)
        assert dict(found.values) == {name: str(value) for name, value in marked.items()}
        return
    with pytest.raises(SubjectsRefusedError) as refused:
        read_subjects([json.dumps(marked).encode()], CATEGORIES)
    assert "@@" not in str(refused.value)


def tagged(
    name: str, category: str = "email", reach: Reach = Reach.PERSONAL, origin: str = ""
) -> Tagged:
    """A tag of `schema.table:column`, which started at an origin."""
    ref, start = (
        ColumnRef(*one.split(":", 1)) if ":" in one else ColumnRef(one)
        for one in (name, origin or name)
    )
    return Tagged(
        ref=ref, category=category, reach=reach, path=(ref,) if start == ref else (start, ref)
    )


def test_why_somebody_is_not_found_is_said() -> None:
    everywhere = [
        tagged("a.people:email"),
        tagged("a.people:phone", "phone"),
        tagged("a.calls:phone", "phone"),
        tagged("a.b:hash", reach=Reach.PSEUDONYM),
        tagged("a.b:cut", reach=Reach.DERIVED),
        tagged("a.c:any", reach=Reach.UNSURE),
        tagged("a.d", reach=Reach.UNSURE),
        tagged("a.c:kind", reach=Reach.INDIRECT),
        tagged("kafka:mail"),
        tagged("a.copy:text", origin="a.letters:payload:$.to"),
    ]

    def reasons(*given: str) -> dict[str, str]:
        found = out_of_reach(everywhere, given, {"kafka": "it is outside the lake"})
        return {f"{one.table}:{one.column}": one.why for one in found}

    assert reasons("email", "phone") == {
        "a.b:hash": "hashes and masks are not looked for",
        "a.b:cut": "values that a function has changed are not looked for",
        "a.c:any": "it is unknown which columns hold values",
        "a.d:None": "it is unknown which columns hold values",
        "a.copy:text": "it may hold a whole struct or JSON text, which is compared as one value",
        "kafka:mail": "it is outside the lake",
    }
    # people are found by their addresses
    assert reasons("email").keys() - reasons("email", "phone").keys() == {"a.calls:phone"}
    assert set(reasons("phone").values()) == {
        "no value of email is given",
        "it is outside the lake",
    }


def test_paths_are_those_of_values() -> None:
    lake = Lake("shop", [SourceTable("a.people"), SourceTable("a.other")])
    tags = [tagged(f"a.people:{one.word}", reach=one) for one in Reach]
    tags += [tagged("a.people"), tagged("elsewhere:email"), tagged("a.people:$.email")]
    (found,) = searched_tables(lake, tags, {}, "_rescued")
    assert found == Searched(table="a.people", paths=(TaggedPath("personal", "email"),))


def test_messages_state_and_refused_rows_are_searched_too() -> None:
    orders = cdc_table(
        "shop.orders",
        source=JsonLines("in"),
        envelope=Debezium(),
        merge=CDCMerge(keys=("mail",)),
        schema=SourceSchema(names={"e_mail": "mail"}),
        asset=Asset(columns={"mail": personal("email"), "name": personal("name")}),
    )
    plain = sql_table(
        "gold.plain",
        sql="SELECT mail, name FROM shop.orders",
        refresh="full",
        asset=Asset(columns={"mail": personal("email")}),
    )
    tags = [
        tagged("shop.orders:mail"),
        tagged("shop.orders:name", "name"),
        tagged("gold.plain:mail"),
    ]
    several = {
        one.table: one
        for one in searched_tables(Lake("shop", [orders, plain]), tags, {}, "_rescued")
    }
    beside = {
        "shop.orders__changes",
        "shop.orders__state",
        "shop.orders__quarantine",
        "gold.plain__quarantine",
    }
    assert {*several} == beside | {"shop.orders", "gold.plain"}
    assert several["gold.plain__quarantine"] == Searched(
        table="gold.plain__quarantine", paths=(TaggedPath("row:$.mail", "email"),), texts=("row",)
    )
    messages = {(path.name, path.category) for path in several["shop.orders__changes"].paths}
    assert messages == {
        ("value:$..mail", "email"),
        ("key:$..mail", "email"),
        ("value:$..e_mail", "email"),
        ("key:$..e_mail", "email"),
        ("row_key", "email"),
        ("value:$..name", "name"),
        ("key:$..name", "name"),
    }
    assert {path.name for path in several["shop.orders__state"].paths} == {
        "columns:$..mail",
        "columns:$..e_mail",
        "columns:$..name",
        "key",
        "continues",
    }
