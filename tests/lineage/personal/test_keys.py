"""Which columns the keys of subjects reach, and where nobody is found by them."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.lake import Asset, CDCMerge, Debezium, JsonLines, Lake, SourceSchema, change_table, personal, sql_table
from lakechime_dagster.lineage.columns import ColumnLineage, ColumnRef, Kind, Source
from lakechime_dagster.lineage.personal.beside import searched_beside
from lakechime_dagster.lineage.personal.keys import Key, OutOfReach, Place, Reached, Searched, out_of_reach, reached, searched
from lakechime_dagster.lineage.personal.tags import Reach, Tagged
from lakechime_dagster.lineage.personal.ways import Lost, Step, Way, Ways, told_ways

LOWER, SHA = Step("Lower"), Step("Sha2", after=("256",))
EMAIL = ColumnRef("people", "email")
COLUMNS = [ColumnRef(f"t{table}", name) for table in range(5) for name in "ab"]  # a table reads those before it


def of(*ways: Way, lost: tuple[Lost, ...] = ()) -> Ways:
    return Ways(several=frozenset(ways), lost=frozenset(lost))


def tagged(ref: ColumnRef, category: str = "email", reach: Reach = Reach.PERSONAL) -> Tagged:
    return Tagged(ref=ref, category=category, reach=reach, path=(ref,))


@st.composite
def networks(draw: st.DrawFn) -> dict[ColumnRef, set[Way]]:
    """Ways of columns from columns of tables before theirs."""
    steps = st.sampled_from([(), (LOWER,), (SHA,), (LOWER, SHA)])
    return {
        ref: draw(st.sets(st.builds(Way, st.sampled_from(COLUMNS[: at - at % 2]), steps), max_size=2)) if at > 1 else set()
        for at, ref in enumerate(COLUMNS)
    }


@given(networks(), st.sets(st.sampled_from(COLUMNS), min_size=1, max_size=3))
def test_a_column_has_a_key_for_each_path_that_leads_to_it(network: dict[ColumnRef, set[Way]], tags: set[ColumnRef]) -> None:
    def paths(ref: ColumnRef) -> Iterator[tuple[Step, ...]]:
        if ref in tags:
            yield ()
        for source, steps in network[ref]:
            yield from ((*before, *steps) for before in paths(source))

    ways: dict[str, dict[str, Ways]] = {}
    for ref, several in network.items():
        ways.setdefault(ref.table, {})[str(ref.column)] = of(*several)
    found = reached(dict.fromkeys(tags, "email"), ways, {})
    for ref in COLUMNS:
        expected = {Key("email", steps) for steps in paths(ref)}
        assert found.keys.get(ref.table, {}).get(str(ref.column), set()) == expected


def test_parts_of_a_column_are_carried_with_it_and_found_in_it() -> None:
    tags = {ColumnRef("a", "Address.street"): "street", ColumnRef("a", "payload:$.to[].email"): "email", ColumnRef("a", "who"): "email"}
    same = {
        "place": of(Way(ColumnRef("a", "address"))), "text": of(Way(ColumnRef("a", "payload"))),
        "mail": of(Way(ColumnRef("a", "payload:$.to[].email"), (LOWER,))), "name": of(Way(ColumnRef("a", "who.name"))),
        "town": of(Way(ColumnRef("a", "address.town"))),
    }  # fmt: skip
    found = reached(tags, {"b": same}, {})
    assert found.keys["b"] == {
        "place.street": {Key("street")}, "text:$.to[].email": {Key("email")}, "mail": {Key("email", (LOWER,))}, "name": {Key("email")},
    }  # fmt: skip
    assert [one.texts for one in searched(found, ["a", "b"])] == [("payload",), ("text",)]


def test_a_function_takes_a_value_of_the_type_that_its_column_has() -> None:
    number, date = ColumnRef("a", "id"), ColumnRef("a", "born")
    ways = {"hash": of(Way(number, (SHA,))), "year": of(Way(date, (SHA,)))}
    found = reached({number: "customer", date: "birthday"}, {"b": ways}, {number: "long", date: "date"})
    assert found.keys["b"] == {"hash": {Key("customer", (Step("Cast", after=("bigint",)), SHA))}}
    assert found.lost == {("b", "year"): {Lost(date, "functions of its type are not followed")}}


def test_of_recorded_lineage_only_the_same_value_is_a_way() -> None:
    sources = (Source(EMAIL, Kind.IDENTITY), Source(ColumnRef("people", "name"), Kind.TRANSFORMATION), Source(EMAIL, Kind.JOIN))
    told = told_ways(ColumnLineage(column="mail", sources=sources, foreign=("Python UDF f",)))
    assert told == of(
        Way(EMAIL), lost=(Lost(ColumnRef("people", "name"), "its expression is not known"), Lost(None, "Python UDF f"))
    )  # fmt: skip


def test_it_is_told_why_somebody_is_not_found_in_a_table() -> None:
    hashed, cut, opaque = ColumnRef("b", "hash"), ColumnRef("b", "cut"), ColumnRef("c", "any")
    tags = {EMAIL: "email", ColumnRef("people", "phone"): "phone"}
    ways = {"hash": of(Way(EMAIL, (SHA,))), "cut": of(lost=(Lost(EMAIL, "Substring is not followed"),))}
    found = reached(tags, {"b": ways}, {})
    everywhere = [tagged(ref, category) for ref, category in tags.items()]
    everywhere += [tagged(hashed, reach=Reach.PSEUDONYM), tagged(cut), tagged(opaque, reach=Reach.UNSURE)]
    everywhere += [tagged(ColumnRef("b"), reach=Reach.INDIRECT), tagged(ColumnRef("kafka://x/y", "m"))]
    unread = {"kafka://x/y": "it is outside of the lake"}
    places = searched(found, ["people", "b"])

    def told(*given: str) -> dict[str, str]:
        return {f"{one.table}.{one.column}": one.why for one in out_of_reach(found, everywhere, given, places, unread)}

    outside, unknown = {"kafka://x/y.m": "it is outside of the lake"}, {"c.any": "the way of the value to it is not known"}
    lost = {"b.cut": "people.email: Substring is not followed"}
    assert told("email") == lost | outside | unknown
    none = "no value of email is given"
    assert told("phone") == lost | outside | unknown | {"b.hash": none}
    others = [tagged(cut), tagged(ColumnRef("elsewhere", "email"))]
    assert out_of_reach(found, others, ["email"], places, {})[0] == OutOfReach(
        table="b", column="cut", category="email", why="the way of the value to it is not known"
    )  # what is lost is not known to be personal


def test_what_is_refused_remembered_and_told_of_a_table_is_looked_into() -> None:
    orders = change_table(
        "shop.orders",
        source=JsonLines("in"),
        envelope=Debezium(),
        merge=CDCMerge(keys=("mail",)),
        schema=SourceSchema(names={"e_mail": "mail"}),
        asset=Asset(columns={"mail": personal("email"), "name": personal("name")}),
    )
    plain = sql_table(
        "gold.plain", sql="SELECT mail, name FROM shop.orders", refresh="full", asset=Asset(columns={"mail": personal("email")})
    )
    found = Reached(keys={"shop.orders": {"mail": {Key("email")}, "name": {Key("name")}}, "gold.plain": {"mail": {Key("email", (SHA,))}}})
    several = {one.table: one for one in searched_beside(Lake("shop", [orders, plain]), found.keys)}
    assert {*several} == {"shop.orders__changes", "shop.orders__state", "shop.orders__quarantine", "gold.plain__quarantine"}
    assert several["gold.plain__quarantine"] == Searched(
        table="gold.plain__quarantine", places=(Place("row:$.mail", Key("email", (SHA,))),), is_text=True, texts=("row",)
    )
    messages = {(place.name, place.key.category) for place in several["shop.orders__changes"].places}
    assert messages == {
        ("value:$..mail", "email"), ("key:$..mail", "email"), ("value:$..e_mail", "email"), ("key:$..e_mail", "email"),
        ("row_key", "email"), ("value:$..name", "name"), ("key:$..name", "name"),
    }  # fmt: skip
    assert {place.name for place in several["shop.orders__state"].places} == {
        "columns:$..mail", "columns:$..e_mail", "columns:$..name", "key", "continues",
    }  # fmt: skip
