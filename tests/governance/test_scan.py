"""Columns are proposed by names and by valid values, and nothing that is not personal by a mere
likeness.
"""

import json
import random
from collections.abc import Mapping

import pytest

from lakechime_dagster.governance.data import MAX_NAMES, category_of, library_validator, scanned

RANDOM, VALIDATE = random.Random(7), library_validator()
EMAILS = [f"person{n}@example.com" for n in range(40)]
IBANS = ["DE89370400440532013000", "GB82 WEST 1234 5698 7654 32", "FR1420041010050500013M02606"]
CARDS = ["4111 1111 1111 1111", "5500005555555559", "340000000000009"]


def proposed(
    values: Mapping[str, list[object]], known: tuple[str, ...] = ()
) -> dict[str, tuple[str, bool, int, int]]:
    """By column or path the category, whether by name, how many values, and how many valid ones."""
    length = max(map(len, values.values()))
    rows = [
        {name: several[n % len(several)] for name, several in values.items()} for n in range(length)
    ]
    return {
        one.column: (one.category, one.by_name, one.values, one.valid)
        for one in scanned(values, rows, VALIDATE, known).proposals
    }


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("email", "email"),
        ("E_MAIL", "email"),
        ("userEmails", "email"),
        ("email_address", "email"),
        ("ip_address", "ip"),
        ("billingAddress2", "address"),
        ("dateOfBirth", "birth_date"),
        ("zip", "postcode"),
        ("last_name", "name"),
        ("product_name", None),
        ("host", None),
        ("shipment", None),
        ("zipped", None),
        ("telemetry", None),
        ("description", None),
        ("id", None),
    ],
)
def test_a_name_is_read_by_its_words(name: str, category: str | None) -> None:
    assert category_of(name) == category


def test_values_that_are_valid_are_proposed_whatever_their_column_is_called() -> None:
    found = proposed(
        {
            "a": [*EMAILS],
            "b": [*IBANS],
            "c": ["+49 30 901820", "+1 202-456-1111"],
            "d": [*CARDS],
            "e": ["RSSMRA85T10A562S"] * 40,
        }
    )
    assert {name: one[0] for name, one in found.items()} == {
        "a": "email",
        "b": "iban",
        "c": "phone",
        "d": "card",
        "e": "national_id",
    }
    assert found["a"] == ("email", False, 40, 40)


def test_what_merely_looks_alike_is_not_proposed() -> None:
    found = proposed(
        {
            "order_id": [RANDOM.randrange(2_000_000_000, 9_999_999_999) for _ in range(200)],
            "track": [RANDOM.randrange(10**15, 10**16) for _ in range(200)],
            "sku": [
                f"{RANDOM.randrange(100, 899)}-{RANDOM.randrange(10, 99)}-{RANDOM.randrange(1000, 9999)}"
                for _ in range(200)
            ],
            "version": [f"{n % 9}.{n % 7}.{n % 5}.{n}" for n in range(200)],
            "amount": [n / 7 for n in range(200)],
            "code": [f"{RANDOM.randrange(10**8, 10**9)}" for _ in range(200)],
            "note": ["see a@b", "@home", "+1", "DE89"] * 50,
        }
    )
    assert found == {}


def test_values_are_found_in_structs_arrays_maps_and_json_texts() -> None:
    found = proposed(
        {
            "user": [{"contact": one} for one in EMAILS],
            "copies": [[one] for one in EMAILS],
            "tags": [[(one, "x")] for one in EMAILS],
            "payload": [json.dumps({"to": {"a": one}, "list": [{"b": one}]}) for one in EMAILS],
            "raw": [json.dumps({"c": one}).encode() for one in EMAILS],
            "outer": [json.dumps({"in": json.dumps({"d": one})}) for one in EMAILS],
        }
    )
    assert set(found) == {
        "user.contact",
        "copies",
        "tags",
        "payload:$.to.a",
        "payload:$.list[].b",
        "raw:$.c",
        "outer:$.in",
    }


def test_names_within_json_that_are_values_are_never_shown_as_paths() -> None:
    rows = [{"payload": json.dumps({one: 1})} for one in EMAILS] + [
        {"payload": json.dumps({f"k{n}": "x"})} for n in range(500)
    ]
    checked = list[str]()
    found = scanned(["payload"], rows, lambda text: checked.append(text) or ("email",), ())
    (proposal,) = found.proposals
    assert (proposal.column, len(checked) - proposal.values) == ("payload", MAX_NAMES)
    assert proposed({"payload": [json.dumps({one: 1}) for one in EMAILS]}) == {
        "payload": ("email", False, 80, 40)
    }


def test_what_is_known_and_what_is_within_it_is_not_proposed_again() -> None:
    given = {
        "mail": EMAILS,
        "payload": [json.dumps({"to": one, "from": one}) for one in EMAILS],
        "user": [{"email": one} for one in EMAILS],
    }
    assert set(proposed(given, ("Mail", "payload:$.to"))) == {"payload:$.from", "user.email"}  # type: ignore[arg-type]
    assert set(proposed(given, ("payload", "user"))) == {"mail"}  # type: ignore[arg-type]
