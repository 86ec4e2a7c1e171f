"""How many bytes hold a value, by the spans of files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.tables.maintenance import opened, wanted

FILES = st.lists(st.tuples(st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda two: (min(two), max(two))), st.integers(1, 9)))


def test_where_the_span_of_a_file_is_not_known_nothing_is_said() -> None:
    assert (opened([((0, 4), 10), (None, 10)]), opened([])) == (0, 0)


@given(FILES)
def test_it_is_what_a_look_at_each_file_finds(files: list[tuple[tuple[int, int], int]]) -> None:
    found = [sum(size for (low, high), size in files if low <= span[0] <= high) for span, _ in files]
    assert opened(files) == (sum(found) / len(found) if found else 0)


@pytest.mark.parametrize(("dimensions", "size"), [(1, 10), (2, 40), (4, 80)])
def test_laid_out_by_several_columns_a_value_of_one_lies_in_more_files(dimensions: int, size: int) -> None:
    assert wanted(160, 10, dimensions) == size
    assert wanted(5, 10, dimensions) == 10
