"""Which types stay where they are, since so little of them came."""

import datetime as dt

from lakechime_dagster.lake import EventGroup, JsonLines, event_group, event_stream
from lakechime_dagster.schema.cold import MAX_PLACES, Came, cold_types
from lakechime_dagster.schema.repository import KnownType, TypePlace

GAME = event_stream("game", source=JsonLines("in"))
MINUTE = 60_000


def group(cold_rows: int = 10) -> EventGroup:
    return event_group("shop", GAME, cold_rows=cold_rows, max_cold_age=dt.timedelta(minutes=5))


def came(
    rows: int = 1, kind: str = "buy", start: int = 3, *, commits: int = 1, is_news: bool = False, failures: int = 0, due_ts: int = 0
) -> Came:
    known = KnownType(type=kind, table=kind, place=TypePlace(uid="u", version=start, commits=commits), failures=failures, due_ts=due_ts)
    return Came(known=known, rows=rows, start=start, is_news=is_news)


def cold(*several: Came, now_ms: int = MINUTE, of: EventGroup | None = None) -> dict[str, int]:
    return cold_types(several, of or group(), now_ms)


def test_fewer_rows_than_are_worth_a_commit_stay_for_a_while():
    assert cold(came(9)) == {"buy": 6 * MINUTE}
    assert cold(came(10)) == cold(came(0)) == {}


def test_no_type_is_cold_unless_it_is_declared():
    assert cold(came(1), of=event_group("shop", GAME)) == {}


def test_a_cold_type_is_written_when_its_oldest_rows_have_waited_long_enough():
    assert cold(came(2, due_ts=6 * MINUTE), now_ms=3 * MINUTE) == {"buy": 6 * MINUTE}
    assert cold(came(2, due_ts=6 * MINUTE), now_ms=6 * MINUTE) == {}


def test_a_shorter_age_holds_for_what_is_cold_already():
    assert cold(came(2, due_ts=99 * MINUTE), now_ms=MINUTE) == {"buy": 6 * MINUTE}


def test_a_first_table_a_new_column_a_replay_and_a_recovery_wait_for_nothing():
    assert cold(came(commits=0)) == cold(came(is_news=True)) == cold(came(failures=1)) == {}


def test_cold_types_are_left_at_few_places_the_newest_ones():
    several = [came(kind=f"{number:02}", start=number) for number in range(MAX_PLACES + 2)]
    assert [*cold(*several, came(kind="beside", start=2))] == [f"{number:02}" for number in range(2, MAX_PLACES + 2)] + ["beside"]
