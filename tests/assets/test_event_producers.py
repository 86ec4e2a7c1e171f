"""Who sent what a step rescued, for people who look at a group."""

from lakechime_dagster.assets.event_producers import MAX_SHOWN, producers_table
from lakechime_dagster.schema.producers import Brought
from lakechime_dagster.schema.rescue import Rescue
from lakechime_dagster.schema.results import Sent, TypeResult


def result(name: str, sent: dict[str, Sent], brought: dict[str, Brought] | None = None) -> TypeResult:
    return TypeResult(type=name, table=name, start=0, end=1, producers=sent, brought=brought or {})


def test_producers_are_listed_over_all_types_those_first_who_were_rescued_most() -> None:
    several = [
        result("buy", {"a": Sent(events=5, rescued=2, reasons={Rescue.CASE: 2}), "fine": Sent(events=99)}),
        result("sell", {"a": Sent(events=1)}, {"": Brought(columns=3, conflicts=1), "fine": Brought(columns=2)}),
        result("fly", {"b|c\n": Sent(events=4, rescued=4, reasons={Rescue.CASE: 1, Rescue.PRODUCER_CAP: 4})}),
    ]
    assert producers_table(several).splitlines()[2:] == [
        "| b\\|c  | 1 | 4 | 4 | case 1, producer_cap 4 | 0 | 0 |",
        "| a | 2 | 6 | 2 | case 2 | 0 | 0 |",
        "| (none) | 1 | 0 | 0 |  | 3 | 1 |",
    ]  # fmt: skip
    assert producers_table([result("buy", {"fine": Sent(events=1)})]) == "none"


def test_no_more_producers_are_listed_than_people_read() -> None:
    many = {f"p{number:03}": Sent(events=1, rescued=1) for number in range(MAX_SHOWN + 2)}
    assert producers_table([result("buy", many)]).splitlines()[-2:] == ["| p049 | 1 | 1 | 1 |  | 0 | 0 |", "and 2 more"]
