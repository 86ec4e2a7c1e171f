"""Loading a lake by the name that the settings give."""

import pytest

from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.lake.load import load_lake


def test_a_lake_is_found_by_module_and_attribute() -> None:
    assert load_lake("tests.e2e.lake:lake").name == "shop"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no.such.package:lake", "names no module no.such.package; is it installed or on PYTHONPATH"),
        ("tests.e2e.lake:pond", "tests.e2e.lake has no Lake of the name pond"),
        ("json:dumps", "json has no Lake of the name dumps"),
    ],
)
def test_what_is_no_lake_is_told_with_its_name(name: str, problem: str) -> None:
    with pytest.raises(InvalidValueError, match=problem):
        load_lake(name)
