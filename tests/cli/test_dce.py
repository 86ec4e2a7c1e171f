"""`lakechime dce`: the contracts of registering and listing."""

import json
import threading
from pathlib import Path

import pytest

from lakechime_dagster.dce.events import DataChangeEvent
from lakechime_dagster.dce.partitions import PartitionLevels
from tests.support.cli import Cli

FIELDS = {
    "event_ts",
    "table",
    "partition",
    "snapshot_id",
    "snapshot_ts",
    "prev_snapshot_id",
    "table_format",
    "operation_type",
    "tags",
    "cluster",
    "table_uid",
    "event_key",
    "added_bytes",
    "position",
    "amends",
}


ALL_FLAGS = """
dce register --table bronze.orders --format DELTA --operation APPEND --partition ["2013-01-01",5] --snapshot-id 7 --prev-snapshot-id 6
--snapshot-ts 1357000000000 --tag complete=true --tag note=a=b --cluster west --table-uid u1 --event-key k1 --added-bytes 4096 --json
"""


def register(lakechime: Cli, *arguments: str) -> dict:
    answer = lakechime("dce", "register", *arguments, "--json")
    assert answer.code == 0, answer
    return answer.json


def test_every_flag_of_register_reaches_the_event(lakechime: Cli) -> None:
    answer = lakechime(*ALL_FLAGS.split())
    assert answer.code == 0
    assert set(answer.json) == {"registered", "duplicates"}
    (event,) = answer.json["registered"]
    assert set(event) == FIELDS
    assert {name: event[name] for name in FIELDS - {"event_ts", "position"}} == {
        "table": "bronze.orders",
        "partition": ["2013-01-01", 5],
        "snapshot_id": "7",
        "prev_snapshot_id": "6",
        "snapshot_ts": 1357000000000,
        "table_format": "DELTA",
        "operation_type": "APPEND",
        "tags": {"complete": "true", "note": "a=b"},
        "cluster": "west",
        "table_uid": "u1",
        "event_key": "k1",
        "added_bytes": 4096,
        "amends": None,
    }
    assert isinstance(event["event_ts"], int)


def test_a_file_of_json_lines_is_one_transaction(lakechime: Cli, tmp_path: Path) -> None:
    lines = [
        {"table": "a.b", "snapshot_id": str(n), "table_format": "DELTA", "operation_type": "APPEND"}
        for n in range(3)
    ]
    good = tmp_path / "events.jsonl"
    good.write_text("\n\n".join(map(json.dumps, lines)))
    bad = "\n".join(
        [
            *(json.dumps(line | {"table": "c.d"}) for line in lines),
            '{"table": "c.d", "color": "red"}',
        ]
    )
    assert len(register(lakechime, "--file", str(good))["registered"]) == 3
    refused = lakechime("dce", "register", "--file", "-", "--json", stdin=bad)
    assert refused.code == 1
    assert refused.json["error"]["field"] == "line 4, event field"
    assert lakechime("dce", "list", "--table", "c.d", "--json").json == {"events": []}


def test_a_byte_order_mark_before_json_lines_is_no_part_of_them(
    lakechime: Cli, tmp_path: Path
) -> None:
    text = '{"table": "a.b", "snapshot_id": "1"}\n{"table": "a.b", "snapshot_id": "2"}\n'
    marked = tmp_path / "marked.jsonl"
    marked.write_text(text, encoding="utf-8-sig")
    registered = register(lakechime, "--file", str(marked))["registered"]
    assert [event["snapshot_id"] for event in registered] == ["1", "2"]
    again = lakechime("dce", "register", "--file", "-", "--json", stdin=text.encode("utf-8-sig"))
    assert again.json == {"registered": [], "duplicates": registered}


def test_what_only_unicode_calls_a_line_break_breaks_no_json_line(
    lakechime: Cli, tmp_path: Path
) -> None:
    sign = "\u2028"
    text = json.dumps(
        {"table": "a.b", "snapshot_id": "1", "tags": {"note": f"a{sign}b"}}, ensure_ascii=False
    )
    file = tmp_path / "events.jsonl"
    file.write_text(text, encoding="utf-8")
    registered = register(lakechime, "--file", str(file))["registered"]
    assert [event["tags"] for event in registered] == [{"note": f"a{sign}b"}]
    again = lakechime("dce", "register", "--file", "-", "--json", stdin=text)
    assert again.json == {"registered": [], "duplicates": registered}


def test_what_list_prints_can_be_registered_again_elsewhere(lakechime: Cli) -> None:
    register(lakechime, "--table", "a.b", "--snapshot-id", "1", "--tag", "x=y")
    events = lakechime("dce", "list", "--json").json["events"]
    done = lakechime(
        "dce", "register", "--file", "-", "--json", stdin="\n".join(map(json.dumps, events))
    )
    assert done.json == {"registered": [], "duplicates": events}


def test_the_cluster_of_the_settings_is_the_default(
    lakechime: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKECHIME_CLUSTER", "east")
    (event,) = register(lakechime, "--table", "a.b")["registered"]
    assert event["cluster"] == "east"


def test_list_filters_by_every_condition(lakechime: Cli) -> None:
    for hour, tags in (
        (4, ["--tag", "complete=true"]),
        (5, ["--tag", "complete=true", "--tag", "x=y"]),
        (6, []),
    ):
        register(
            lakechime,
            "--table",
            "a.b",
            "--partition",
            f'["2013-01-01", {hour}]',
            "--snapshot-id",
            str(hour),
            *tags,
        )
    register(lakechime, "--table", "c.d", "--cluster", "west")
    hours = {4: [4], 5: [5], 6: [6]}

    def listed(*arguments: str) -> list[int]:
        answer = lakechime("dce", "list", "--table", "a.b", *arguments, "--json")
        assert answer.code == 0, answer
        return [event["partition"][1] for event in answer.json["events"]]

    assert listed() == [4, 5, 6]
    assert listed("--partition", '["2013-01-01", 5]') == hours[5]
    assert listed("--tag", "complete=true") == [4, 5]
    assert listed("--tag", "complete=true", "--tag", "x=y") == hours[5]
    assert listed("--limit", "1") == hours[4]
    second = lakechime("dce", "list", "--table", "a.b", "--json").json["events"][1]
    assert listed("--after", second["position"]) == hours[6]
    assert (
        lakechime("dce", "list", "--cluster", "west", "--json").json["events"][0]["table"] == "c.d"
    )


def test_exit_code_three_says_that_nothing_was_found(lakechime: Cli) -> None:
    assert lakechime("dce", "list", "--table", "a.b").code == 0
    nothing = lakechime("dce", "list", "--table", "a.b", "--exit-code", "--json")
    assert (nothing.code, nothing.json) == (3, {"events": []})
    register(lakechime, "--table", "a.b")
    assert lakechime("dce", "list", "--table", "a.b", "--exit-code").code == 0


def test_a_dry_run_of_register_reports_duplicates_and_refuses_what_registering_would(
    lakechime: Cli,
) -> None:
    lakechime.platform.store.declare("a.b", PartitionLevels.of({"day": "date"}))
    first = register(
        lakechime, "--table", "a.b", "--partition", '["2013-01-01"]', "--snapshot-id", "1"
    )["registered"]
    lines = [
        json.dumps({"table": "a.b", "partition": ["2013-01-01"], "snapshot_id": number})
        for number in "12"
    ]
    would = lakechime(
        "dce", "register", "--file", "-", "--dry-run", "--json", stdin="\n".join(lines)
    ).json
    assert ([event["snapshot_id"] for event in would["registered"]], would["duplicates"]) == (
        ["2"],
        first,
    )
    said = lakechime("dce", "register", "--file", "-", "--dry-run", stdin="\n".join(lines)).out
    assert said == "1 event would be registered, 1 duplicate\n"
    deep = lakechime(
        "dce",
        "register",
        "--table",
        "a.b",
        "--partition",
        '["2013-01-01", 5]',
        "--dry-run",
        "--json",
    )
    assert (deep.code, deep.json["error"]["field"]) == (1, "partition")
    assert lakechime("dce", "list", "--json").json == {"events": first}


def test_register_without_a_snapshot_is_a_completeness_marker_of_each_partition(
    lakechime: Cli,
) -> None:
    answer = register(
        lakechime,
        "--table",
        "a.b",
        "--partition",
        '["d", 1]',
        "--partition",
        '["d", 2]',
        "--tag",
        "complete=true",
    )
    events = answer["registered"]
    assert [(event["partition"], event["snapshot_id"], event["tags"]) for event in events] == [
        (["d", 1], None, {"complete": "true"}),
        (["d", 2], None, {"complete": "true"}),
    ]


def test_follow_shows_events_after_a_position(lakechime: Cli) -> None:
    first = register(lakechime, "--table", "a.b", "--snapshot-id", "1")["registered"][0]
    register(lakechime, "--table", "a.b", "--snapshot-id", "2")
    register(lakechime, "--table", "c.d", "--snapshot-id", "3")
    answer = lakechime(
        "dce",
        "list",
        "--follow",
        "--after",
        first["position"],
        "--table",
        "a.b",
        "--for",
        "0",
        "--json",
    )
    assert [event["snapshot_id"] for event in answer.json["events"]] == ["2"]
    lines = lakechime(
        "dce", "list", "--follow", "--after", first["position"], "--for", "0", "--lines"
    ).out.splitlines()
    assert [json.loads(line)["snapshot_id"] for line in lines] == ["2", "3"]


def test_follow_shows_events_as_they_are_registered(lakechime: Cli) -> None:
    (first,) = register(lakechime, "--table", "c.d")["registered"]
    store = lakechime.platform.store
    later = threading.Timer(0.2, lambda: store.register([DataChangeEvent(table="a.b")]))
    later.start()
    answer = lakechime(
        "dce",
        "list",
        "--follow",
        "--after",
        first["position"],
        "--limit",
        "1",
        "--for",
        "60",
        "--json",
    )
    later.join()
    assert [event["table"] for event in answer.json["events"]] == ["a.b"]
