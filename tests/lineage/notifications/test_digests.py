"""Each owner gets a message about the own affected tables and readers, and about nothing else; the text is plain lines."""

from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.governance.changes import (
    AffectedTable,
    Change,
    Digests,
    Occasion,
    ReaderKind,
    digests_of,
    text_of,
    title_of,
    withdrawal_text,
)
from tests.lineage.notifications.changes import NOW_MS, make_affected, make_change, make_reader

OWNERS = st.sampled_from(["ana", "bo", "cy", "team:x", ""])
READERS = st.builds(
    make_reader, st.sampled_from(["D", "E"]), OWNERS, days_ago=st.sampled_from([1, 40, 89, 91]), kind=st.sampled_from(ReaderKind)
)
HITS = st.lists(
    st.builds(
        lambda number, owners, layer, readers: make_affected(f"t.{number}", *owners, layer=layer, readers=tuple(readers)),
        st.integers(0, 5),
        st.sets(OWNERS.filter(bool), max_size=2),
        st.integers(0, 3),
        st.lists(READERS, max_size=3),
    ),
    max_size=5,
    unique_by=lambda hit: hit.table,
)


def told(change: Change, *hits: AffectedTable) -> Digests:
    return digests_of(change, hits, NOW_MS)


@given(HITS, OWNERS)
def test_an_owner_gets_all_that_is_theirs_and_nothing_else(hits: list[AffectedTable], sender: str) -> None:
    found = told(make_change(sender=sender), *hits)
    by_owner = {one.owner: one for one in found.digests}
    expected = {owner for hit in hits for owner in hit.owners} | {
        reader.owner for hit in hits for reader in hit.readers if reader.is_recent(NOW_MS)
    }
    assert set(by_owner) == expected - {"", sender}
    for owner, digest in by_owner.items():
        assert {hit.table for hit in digest.tables} == {hit.table for hit in hits if owner in hit.owners}
        assert {(hit.table, reader) for reader, hit in digest.readers} == {
            (hit.table, reader) for hit in hits for reader in hit.readers if reader.owner == owner and reader.is_recent(NOW_MS)
        }
        assert all(not hit.owners and not hit.readers for hit in (*digest.tables, *(hit for _, hit in digest.readers)))
    assert {hit.table for hit in found.unowned.tables} == {hit.table for hit in hits if not hit.owners}


@given(HITS)
def test_no_text_names_a_table_of_another_owner(hits: list[AffectedTable]) -> None:
    change = make_change()
    for digest in told(change, *hits).digests:
        text = text_of(change, digest, "me")
        theirs = {hit.table for hit in digest.tables} | {hit.table for _, hit in digest.readers}
        assert {hit.table for hit in hits if hit.table in text} == theirs


def test_the_order_of_affected_tables_does_not_matter() -> None:
    hits = [make_affected("a.a", "ana", layer=2), make_affected("a.b", "ana"), make_affected("a.c", "bo", readers=(make_reader(),))]
    assert told(make_change(), *hits) == told(make_change(), *reversed(hits))


def test_a_dashboard_counts_for_90_days_and_a_person_for_35() -> None:
    readers = [make_reader(kind.value, f"{kind}{days}", days_ago=days, kind=kind) for kind in ReaderKind for days in (34, 36, 89, 91)]
    found = told(make_change(), make_affected(readers=tuple(readers)))
    assert [digest.owner for digest in found.digests] == [
        "dashboard34",
        "dashboard36",
        "dashboard89",
        "job34",
        "job36",
        "job89",
        "person34",
    ]


def test_the_sender_gets_tables_without_an_owner_and_no_message_about_the_own() -> None:
    hits = [make_affected("a.own", "team:ops"), make_affected("a.nobodys"), make_affected("a.theirs", "bo")]
    found = told(make_change(sender="team:ops"), *hits)
    assert [digest.owner for digest in found.digests] == ["bo"]
    assert ([hit.table for hit in found.unowned.tables], [hit.table for hit in found.own.tables]) == (["a.nobodys"], ["a.own"])


def test_a_message_says_in_plain_text_what_is_affected_and_why() -> None:
    reader = make_reader("Delays by day", "bo@example.com", days_ago=2, link="https://bi.example.com/7")
    person = make_reader("bo", "bo@example.com", days_ago=3, kind=ReaderKind.PERSON)
    hits = [
        make_affected("gold.daily", "bo@example.com", layer=2, columns=("mean_humid", "max_humid"), readers=(reader, person)),
        make_affected("silver.flights", "bo@example.com", columns=None, is_sure=False),
        make_affected("gold.count", "bo@example.com", columns=()),
    ]
    change = make_change(action="Use bronze.climate in its place.", sender="team:ops")
    (digest,) = told(change, *hits).digests
    assert title_of(change, Occasion.ANNOUNCED) == "Deprecation: bronze.weather.humid on 2026-12-31"
    assert (
        text_of(change, digest, "ana")
        == """\
The station stops measuring it.

What to do: Use bronze.climate in its place.

When: 2026-12-31

What changes: bronze.weather.humid

Your affected tables:
- gold.count (layer 1): which rows it has
- silver.flights (layer 1): columns unknown; not certain, as lineage on the way is unknown
- gold.daily (layer 2): columns mean_humid, max_humid

Your dashboards that read affected tables:
- Delays by day https://bi.example.com/7 reads gold.daily (layer 2): columns mean_humid, max_humid, last read on 2026-05-26

Affected tables that you have read:
- gold.daily (layer 2): columns mean_humid, max_humid, last read on 2026-05-25

Sent by team:ops, ana."""
    )
    assert digest.reason == ("owns gold.count, silver.flights, gold.daily; has Delays by day, which reads gold.daily; reads gold.daily")


def test_names_of_others_stay_in_their_line() -> None:
    reader = make_reader("D\r\nBcc: all@example.com\n\nPay here\u202e", "bo", link="https://x\n\u2028")
    change = make_change()
    (digest,) = told(change, make_affected("gold.x\ny", readers=(reader,))).digests
    text = text_of(change, digest, "me")
    assert "\nBcc" not in text
    assert "\nPay" not in text
    assert [one for one in text if not one.isprintable() and one != "\n"] == []
    assert "\n" not in title_of(change, Occasion.ANNOUNCED)


def test_a_long_digest_says_how_much_it_leaves_out() -> None:
    change = make_change()
    columns = tuple(f"c{number}" for number in range(30))
    (digest,) = told(change, *[make_affected(f"t.{number}", "bo", columns=columns) for number in range(60)]).digests
    text = text_of(change, digest, "me")
    assert ("- and 10 more" in text, "c19 and 10 more" in text, "c20" in text) == (True, True, False)


def test_a_withdrawal_asks_nothing_of_anybody() -> None:
    change = make_change(action="Move away.")
    text = withdrawal_text(change, "me")
    assert text.startswith("This change is withdrawn; no action is needed.")
    assert "Move away" not in text
    assert title_of(change, Occasion.WITHDRAWN).startswith("Withdrawn: Deprecation")
