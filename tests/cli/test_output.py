"""Every way in which a command reports something shows characters that cannot be seen by their
codes.
"""

import json
from collections.abc import Callable

import pytest

from lakechime_dagster.cli.common import note, print_facts, print_json, print_table, relay, say

WAYS: dict[str, Callable[[str], None]] = {
    "a line": say,
    "a line beside the result": note,
    "a cell": lambda name: print_table(["table"], [[name]], empty=""),
    "the head of a column": lambda name: print_table([name], [["x"]], empty=""),
    "a table that has no row": lambda name: print_table(["table"], [], empty=name),
    "the name of a fact": lambda name: print_facts({name: 1}),
    "the value of a fact": lambda name: print_facts({"table": name}),
}
OVERRIDE, ISOLATE, NO_WIDTH, BYTE_ORDER, TAG = "\u202e", "\u2066", "\u200b", "\ufeff", "\U000e0041"
HIDDEN = "".join(
    (
        OVERRIDE,
        ISOLATE,
        NO_WIDTH,
        BYTE_ORDER,
        TAG,
        "\u2028",
        "\u2029",
        "\x1b",
        "\r",
        "\t",
        "\x7f",
        "\x9b",
        "\ud800",
    )
)


@pytest.mark.parametrize("way", WAYS)
def test_what_cannot_be_seen_is_columns_in_its_code(
    way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    WAYS[way](f"gold.{HIDDEN}größe → 東京")
    reported = "".join(capsys.readouterr())
    assert [raw for raw in HIDDEN if raw in reported] == []
    assert f"gold.{ascii(HIDDEN)[1:-1]}größe → 東京" in reported.replace("\n", "").replace("  ", "")


def test_a_document_reports_by_its_code_what_cannot_be_seen_and_is_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = {"tables": [f"gold.{HIDDEN}größe → 東京"], HIDDEN: "\n"}
    print_json(document)
    reported = capsys.readouterr().out
    assert json.loads(reported) == document
    assert ([raw for raw in HIDDEN if raw in reported], "größe → 東京" in reported) == ([], True)


def test_a_value_makes_no_line_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["table"], [["a\nb"]], empty="")
    print_facts({"table": "a\nb"})
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [
        "table",
        "a\\nb",
        "table  a\\nb",
    ]


def test_lines_of_ours_stay_lines(capsys: pytest.CaptureFixture[str]) -> None:
    say("\none:\n- two")
    note("three\nfour")
    assert tuple(capsys.readouterr()) == ("\none:\n- two\n", "three\nfour\n")


def test_what_a_program_of_ours_wrote_keeps_its_colours(capsys: pytest.CaptureFixture[str]) -> None:
    relay("\x1b[32mdagster\x1b[0m is there")
    assert capsys.readouterr().err == "\x1b[32mdagster\x1b[0m is there\n"
