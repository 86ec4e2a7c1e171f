"""`lakechime trigger` on a subscription that reads a source: what it says, and where a person may
put it.
"""

from pathlib import Path

import pytest

from tests.cli.fed import NAME, fed
from tests.sensors.test_tick import ReportedRuns
from tests.support.cli import Answer, Cli
from tests.support.world import ticked

WHY = ["--reason", "the file was rewritten", "--who", "ops"]


@pytest.fixture
def folder(lakechime: Cli) -> Path:
    folder = Path("in")
    folder.mkdir()
    (folder / "a.jsonl").write_text("1\n2\n")
    return folder


def trigger(lakechime: Cli, verb: str, *arguments: str) -> Answer:
    return lakechime("trigger", verb, NAME, *arguments, "--module", "tests.cli.fed")


def one_tick(lakechime: Cli) -> str:
    """A tick of the sensor, with a run that ends at once."""
    tick = ticked(lakechime.platform, fed, ReportedRuns())
    for execution in tick.launches:
        lakechime.platform.ledger.complete(execution, None)
    return "; ".join(tick.sentences)


def test_an_explanation_says_what_the_source_holds(lakechime: Cli, folder: Path) -> None:
    assert (
        f"{NAME} fires:\n  - 4 new bytes in a.jsonl of {folder.resolve()}"
        in trigger(lakechime, "show").out
    )
    one_tick(lakechime)
    assert f"{NAME} does not fire:\n  - nothing new in in/*.jsonl" in trigger(lakechime, "show").out


def test_a_trigger_shows_up_to_where_its_source_was_read(lakechime: Cli, folder: Path) -> None:
    one_tick(lakechime)
    (consumer,) = trigger(lakechime, "show", "--json").json["consumers"]
    assert consumer["checkpoint"]["offsets"] == {"files": {"a.jsonl": 4}}
    shown = trigger(lakechime, "show").out
    assert "messages of in/*.jsonl, as they come" in shown
    assert "4 bytes of 1 file" in shown


def test_a_consumer_that_its_source_blocks_goes_on_when_a_person_resumes(
    lakechime: Cli, folder: Path
) -> None:
    one_tick(lakechime)
    (folder / "a.jsonl").write_text("3\n")
    assert "holds 2 bytes, and 4 of it were read" in one_tick(lakechime)
    assert lakechime("status", "--json").json["consumers_blocked"] == 1
    (folder / "a.jsonl").rename(folder / "b.jsonl")
    assert trigger(lakechime, "resume", *WHY).code == 0
    assert "2 new bytes in b.jsonl" in one_tick(lakechime)


def test_a_source_is_put_to_now_and_not_read_again(lakechime: Cli, folder: Path) -> None:
    one_tick(lakechime)
    back = trigger(lakechime, "seek", "--to", "beginning", *WHY)
    assert (back.code, "its rows would be there twice" in back.err) == (1, True)
    (folder / "b.jsonl").write_text("5\n")
    (moved,) = trigger(lakechime, "seek", "--to", "now", *WHY, "--dry-run", "--json").json[
        "consumers"
    ]
    assert moved["after"]["offsets"] == {"files": {"a.jsonl": 4, "b.jsonl": 2}}
    assert trigger(lakechime, "seek", "--to", "now", *WHY).code == 0
    assert one_tick(lakechime) == "nothing new in in/*.jsonl"
    (folder / "b.jsonl").open("a").write("6\n")
    assert trigger(lakechime, "pause", *WHY).code == 0
    assert one_tick(lakechime) == "paused: the file was rewritten"
    assert trigger(lakechime, "seek", "--to", "now", *WHY).code == 0
    assert trigger(lakechime, "resume", *WHY).code == 0
    assert one_tick(lakechime) == "nothing new in in/*.jsonl"
