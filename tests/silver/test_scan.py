"""What is known of a payload before any table is chosen."""

import pytest

from lakechime_dagster.silver.event import MAX_TYPE, Flag, NoType, Refusal, scanned

TYPE, TITLE = ("head", "type"), ("title",)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\xff", Refusal.NOT_UTF8),
        (b'{"head":', Refusal.NOT_JSON),
        (b"", Refusal.NOT_JSON),
        (b"[]", Refusal.NOT_OBJECT),
        (b"{}", NoType.MISSING),
        (b'{"head":"type"}', NoType.MISSING),
        (b'{"head":{"type":"a"},"head":{}}', NoType.MISSING),
        (b'{"head":{"type":1}}', NoType.NOT_TEXT),
        (b'{"head":{"type":"\\ud800"}}', NoType.NOT_TEXT),
        (b'{"head":{"type":"a\\u0000"}}', NoType.HAS_NUL),
        (b'{"head":{"type":"\\u0000\\ud800"}}', NoType.NOT_TEXT),
        (b'{"head":{"type":" \\n"}}', NoType.EMPTY),
        (b'{"head":{"type":"%s"}}' % (b"x" * (MAX_TYPE + 1)), NoType.TOO_LONG),
    ],
)
def test_a_payload_without_a_type_reports_why(payload: bytes, reason: Refusal | NoType) -> None:
    found = scanned(payload, TYPE, TITLE)
    assert (found.reason, found.type, found.typed_hash) == (reason, None, None)


def test_of_several_fields_of_one_name_the_last_reports_the_type() -> None:
    found = scanned(b'{"head":{"type":"a","type":"b"},"title":"x","title":5}', TYPE, TITLE)
    assert (found.reason, found.type, found.producer, found.flags) == (
        None,
        "b",
        None,
        (Flag.DUPLICATE,),
    )


def test_the_producer_is_reported_where_it_is_text_and_cut() -> None:
    reported = [
        scanned(b'{"head":{"type":"a"},"title":%s}' % title, TYPE, TITLE).producer
        for title in (b'"sonic"', b"1", b'"a\\u0000"')
    ]
    assert reported == ["sonic", None, None]
    assert (
        scanned(b'{"head":{"type":"a"},"title":"%s"}' % (b"x" * 600), TYPE, TITLE).producer
        == "x" * MAX_TYPE
    )
    assert scanned(b'{"head":{"type":"a"},"title":"x"}', TYPE).producer is None


def test_a_type_is_counted_by_its_characters() -> None:
    assert (
        scanned('{{"head":{{"type":"{}"}}}}'.format("é😀" * (MAX_TYPE // 2)).encode(), TYPE).reason
        is None
    )
