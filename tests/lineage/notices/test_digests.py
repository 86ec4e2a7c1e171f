"""Each owner is told of what is theirs and hit, and of nothing else; the text says it in plain lines."""

import datetime as dt

from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.lineage.notices.changes import Change
from lakechime_dagster.lineage.notices.digest_text import text_of, title_of
from lakechime_dagster.lineage.notices.digests import Digests, Hit, ReaderKind, digests_of
from lakechime_dagster.lineage.notices.occasions import ANNOUNCED, WITHDRAWN, due_reminder, reminder
from tests.lineage.notices.changes import NOW_MS, make_change, make_hit, make_reader

OWNERS = st.sampled_from(["ana", "bo", "cy", "team:x", ""])
READERS = st.builds(
    make_reader, st.sampled_from(["D", "E"]), OWNERS, days_ago=st.sampled_from([1, 40, 89, 91]), kind=st.sampled_from(ReaderKind)
)
HITS = st.lists(
    st.builds(
        lambda number, owners, layer, readers: make_hit(f"t.{number}", *owners, layer=layer, readers=tuple(readers)),
        st.integers(0, 5), st.sets(OWNERS.filter(bool), max_size=2), st.integers(0, 3), st.lists(READERS, max_size=3),
    ),
    max_size=5, unique_by=lambda hit: hit.table,
)  # fmt: skip


def told(change: Change, *hits: Hit) -> Digests:
    return digests_of(change, hits, NOW_MS)


@given(HITS, OWNERS)
def test_an_owner_is_told_of_all_that_is_theirs_and_of_nothing_else(hits: list[Hit], sender: str) -> None:
    found = told(make_change(sender=sender), *hits)
    by_owner = {one.owner: one for one in found.digests}
    expected = {owner for hit in hits for owner in hit.owners} | {
        reader.owner for hit in hits for reader in hit.readers if reader.is_recent(NOW_MS)
    }
    assert set(by_owner) == expected - {"", sender}
    for owner, digest in by_owner.items():
        assert {hit.table for hit in digest.hits} == {hit.table for hit in hits if owner in hit.owners}
        assert {(hit.table, reader) for reader, hit in digest.readers} == {
            (hit.table, reader) for hit in hits for reader in hit.readers if reader.owner == owner and reader.is_recent(NOW_MS)
        }
        assert all(not hit.owners and not hit.readers for hit in (*digest.hits, *(hit for _, hit in digest.readers)))
    assert {hit.table for hit in found.unowned.hits} == {hit.table for hit in hits if not hit.owners}


@given(HITS)
def test_no_text_names_a_table_of_another_owner(hits: list[Hit]) -> None:
    change = make_change()
    for digest in told(change, *hits).digests:
        text = text_of(change, digest, ANNOUNCED, "me")
        theirs = {hit.table for hit in digest.hits} | {hit.table for _, hit in digest.readers}
        assert {hit.table for hit in hits if hit.table in text} == theirs


def test_the_order_of_hits_says_nothing() -> None:
    hits = [make_hit("a.a", "ana", layer=2), make_hit("a.b", "ana"), make_hit("a.c", "bo", readers=(make_reader(),))]
    assert told(make_change(), *hits) == told(make_change(), *reversed(hits))


def test_a_dashboard_counts_for_90_days_and_a_person_for_35() -> None:
    readers = [make_reader(kind.value, f"{kind}{days}", days_ago=days, kind=kind) for kind in ReaderKind for days in (34, 36, 89, 91)]
    found = told(make_change(), make_hit(readers=tuple(readers)))
    assert [digest.owner for digest in found.digests] == [
        "dashboard34",
        "dashboard36",
        "dashboard89",
        "job34",
        "job36",
        "job89",
        "person34",
    ]


def test_the_sender_sees_what_has_no_owner_and_is_not_told_of_its_own() -> None:
    hits = [make_hit("a.own", "team:ops"), make_hit("a.nobodys"), make_hit("a.theirs", "bo")]
    found = told(make_change(sender="team:ops"), *hits)
    assert [digest.owner for digest in found.digests] == ["bo"]
    assert ([hit.table for hit in found.unowned.hits], [hit.table for hit in found.own.hits]) == (["a.nobodys"], ["a.own"])


def test_a_digest_says_in_plain_text_what_is_whose_and_why() -> None:
    reader = make_reader("Delays by day", "bo@example.com", days_ago=2, link="https://bi.example.com/7")
    person = make_reader("bo", "bo@example.com", days_ago=3, kind=ReaderKind.PERSON)
    hits = [
        make_hit("gold.daily", "bo@example.com", layer=2, columns=("mean_humid", "max_humid"), readers=(reader, person)),
        make_hit("silver.flights", "bo@example.com", columns=None, is_sure=False),
        make_hit("gold.count", "bo@example.com", columns=()),
    ]
    change = make_change(action="Use bronze.climate in its place.", sender="team:ops")
    (digest,) = told(change, *hits).digests
    assert title_of(change, ANNOUNCED) == "Deprecation: bronze.weather.humid on 2026-12-31"
    assert (
        text_of(change, digest, ANNOUNCED, "ana")
        == """\
The station stops measuring it.

What to do: Use bronze.climate in its place.

When: 2026-12-31

What changes: bronze.weather.humid

Your tables that it reaches:
- gold.count (layer 1): which rows it has
- silver.flights (layer 1): columns not known; whether it is, is not sure, as something on the way is not known
- gold.daily (layer 2): columns mean_humid, max_humid

Your dashboards that read what it reaches:
- Delays by day https://bi.example.com/7 reads gold.daily (layer 2): columns mean_humid, max_humid, read last on 2026-05-26

What you have read of what it reaches:
- gold.daily (layer 2): columns mean_humid, max_humid, read last on 2026-05-25

Sent by team:ops, ana."""
    )
    assert digest.reason == ("owns gold.count, silver.flights, gold.daily; has Delays by day, which reads gold.daily; reads gold.daily")


def test_names_of_others_stay_in_their_line() -> None:
    reader = make_reader("D\r\nBcc: all@example.com\n\nPay here\u202e", "bo", link="https://x\n\u2028")
    change = make_change()
    (digest,) = told(change, make_hit("gold.x\ny", readers=(reader,))).digests
    text = text_of(change, digest, ANNOUNCED, "me")
    assert "\nBcc" not in text
    assert "\nPay" not in text
    assert [one for one in text if not one.isprintable() and one != "\n"] == []
    assert "\n" not in title_of(change, ANNOUNCED)


def test_a_long_digest_says_how_much_it_leaves_out() -> None:
    change = make_change()
    (digest,) = told(change, *[make_hit(f"t.{number}", "bo", columns=tuple(f"c{n}" for n in range(30))) for number in range(60)]).digests
    text = text_of(change, digest, ANNOUNCED, "me")
    assert ("- and 10 more" in text, "c19 and 10 more" in text, "c20" in text) == (True, True, False)


def test_a_withdrawn_change_asks_nothing_of_anybody() -> None:
    change = make_change(action="Move away.")
    (digest,) = told(change, make_hit("gold.daily", "bo")).digests
    text = text_of(change, digest, WITHDRAWN, "me")
    assert text.startswith("This change is withdrawn; nothing is to be done.")
    assert "Move away" not in text
    assert title_of(change, WITHDRAWN).startswith("Withdrawn: Deprecation")
    assert title_of(change, reminder(7)).startswith("Reminder: Deprecation")


def test_reminders_come_before_the_change_each_once_and_a_missed_one_is_made_up_for_by_the_next() -> None:
    change, utc = make_change(), dt.timezone.utc
    announced = dt.datetime(2026, 12, 20, 12, tzinfo=utc)

    def at(day: int, month: int = 12, year: int = 2026) -> str | None:
        return due_reminder(change, announced, dt.datetime(year, month, day, 1, tzinfo=utc))

    assert [at(day) for day in (20, 23, 24, 25, 29, 30, 31)] == [None, None, *["reminder 7"] * 3, *["reminder 1"] * 2]
    assert at(1, 1, 2027) is None
    assert due_reminder(make_change(on=None), announced, announced) is None
