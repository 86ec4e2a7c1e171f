"""Which types may stand in for which, in the JSON of Spark."""

from collections.abc import Mapping

import pytest

from lakechime_dagster.lineage.manifest import fits, misfit

INTEGERS = ("byte", "short", "integer", "long")


def struct(**fields: object) -> Mapping[str, object]:
    return {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in fields.items()
        ],
    }


def array(kind: object, contains_null: bool = True) -> Mapping[str, object]:
    return {"type": "array", "elementType": kind, "containsNull": contains_null}


def mapping(key: object, value: object) -> Mapping[str, object]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


ADDRESS = struct(city="string", zip="integer")


@pytest.mark.parametrize("later", INTEGERS)
@pytest.mark.parametrize("earlier", INTEGERS)
def test_an_integer_fits_where_it_is_as_wide_or_wider(earlier: str, later: str) -> None:
    assert fits(earlier, later) == (INTEGERS.index(earlier) <= INTEGERS.index(later))


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("integer", "double"),
        ("decimal(10,2)", "decimal(12,4)"),
        (ADDRESS, struct(zip="long", city="string", country="string")),
        (array(ADDRESS), array(struct(city="string", zip="long"), contains_null=False)),
        (mapping("string", array("integer")), mapping("string", array("long"))),
    ],
)
def test_wider_numbers_and_new_fields_fit_at_any_depth_and_not_the_other_way_round(
    earlier: object, later: object
) -> None:
    assert (fits(earlier, earlier), fits(earlier, later), fits(later, earlier)) == (
        True,
        True,
        False,
    )


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("long", "string"),
        ("long", "double"),
        ("date", "timestamp"),
        ("decimal(10,2)", "decimal(11,4)"),
        (ADDRESS, struct(city="long", zip="integer")),
        (array("long"), "long"),
        (mapping("string", "long"), mapping("long", "long")),
        ({"type": "udt", "class": "a"}, {"type": "udt", "class": "b"}),
    ],
)
def test_nothing_else_fits(earlier: object, later: object) -> None:
    assert not fits(earlier, later)


@pytest.mark.parametrize(
    ("earlier", "later", "expected"),
    [
        ("long", "string", ((), "long", "string")),
        ("long", None, ((), "long", None)),
        (ADDRESS, struct(zip="integer"), (("city",), "string", None)),
        (
            array(struct(a=array(ADDRESS))),
            array(struct(a=array(struct(city="string", zip="string")))),
            (("a", "zip"), "integer", "string"),
        ),
        (
            mapping("string", ADDRESS),
            mapping("string", "long"),
            ((), mapping("string", ADDRESS), mapping("string", "long")),
        ),
    ],
)
def test_what_does_not_fit_is_reported_where_it_is(
    earlier: object, later: object | None, expected: object
) -> None:
    assert misfit(earlier, later) == expected
