"""A table's code digest is another when what its function reaches is, and the same whatever else is edited, in any process."""

import functools
import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakechime_dagster.lake import SourceTable, spark_table, sql_table
from lakechime_dagster.lake.code_digests import code_digest

orders = SourceTable("bronze.orders")
TABLES = """
import shop.rates
from lakechime_dagster.lake import SourceTable, spark_table
from shop import texts as words
from shop.helpers import double as twice, udf
from .base import *
orders = SourceTable("bronze.orders")
LIMIT = 3
STEPS = []
STEPS.append("trim")
def filtered(frame):
    return frame.where(LIMIT)
def unrelated(frame):
    return frame
@spark_table("silver.paid", keys=["id"], reads={"orders": orders.changes()})
def paid(orders):
    from shop.late import last
    return last(udf(twice)(filtered(orders), STEPS), words.TITLE, shop.rates.tax.RATE, starred)
"""
PROJECT = {
    "tables": TABLES,
    "helpers": """
from shop.deeper import factor
def udf(function):
    return function
def double(x):
    return x * factor()
def other(x):
    return 0
""",
    "deeper": "def factor():\n    return 2\n",
    "texts": "TITLE = 'a'\nFOOT = 'b'\n",
    "rates/__init__": "",
    "rates/tax": "RATE = 7\n",
    "base": "starred = 1\nnot_used = 1\n",
    "late": "class Last:\n    def __call__(self, *several):\n        return several[0]\nlast = Last()\n",
}
Digest = Callable[..., str]


@pytest.fixture
def digest_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Digest:
    """The digest of the table of a project in which pieces of text are others."""
    count = iter(range(99))

    def digest(changes: dict[str, tuple[str, str]] | None = None, table: str = "paid", **modules: str) -> str:
        folder = tmp_path / str(next(count))
        for name, text in {"__init__": "", **PROJECT, **modules}.items():
            was, now = (changes or {}).get(name, ("", ""))
            assert was in text
            path = folder / "shop" / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace(was, now) if was else text, encoding="utf-8")
        for name in [one for one in sys.modules if one.partition(".")[0] == "shop"]:
            monkeypatch.delitem(sys.modules, name)
        with monkeypatch.context() as patch:
            patch.syspath_prepend(str(folder))
            patch.setattr(sys, "dont_write_bytecode", True)
            return code_digest(getattr(importlib.import_module("shop.tables"), table))

    return digest


REACHED = {
    "its own text": ("tables", "last(udf", "last(+udf"),
    "a function of its module": ("tables", "frame.where", "frame.filter"),
    "a constant that this has": ("tables", "LIMIT = 3", "LIMIT = 4"),
    "what a statement adds to a list": ("tables", '"trim"', '"lower"'),
    "a function of another module by another name": ("helpers", "x * factor()", "x + factor()"),
    "what wraps it": ("helpers", "return function", "return print"),
    "a function that this one calls in a third module": ("deeper", "return 2", "return 200"),
    "a constant of a module": ("texts", "'a'", "'c'"),
    "a constant of a module within a package": ("rates/tax", "7", "19"),
    "what comes with a star": ("base", "starred = 1", "starred = 2"),
    "the class of what is imported within the function": ("late", "several[0]", "several[1]"),
    "which function a name means": ("tables", "double as twice", "other as twice"),
}


@pytest.mark.parametrize("what", REACHED)
def test_a_change_of_what_a_function_reaches_is_seen(digest_of: Digest, what: str) -> None:
    module, was, now = REACHED[what]
    assert digest_of({module: (was, now)}) != digest_of()


SILENT = {
    "another function of its module": ("tables", "    return frame\n", "    return frame.limit(1)\n"),
    "another function of a module": ("helpers", "return 0", "return 1"),
    "another constant of a module": ("texts", "'b'", "'d'"),
    "another name of a module whose names all are there": ("base", "not_used = 1", "not_used = 2"),
    "a comment": ("helpers", "return x", "# twice as much\n    return x"),
    "a docstring": ("deeper", "    return 2", "    '''The factor.'''\n    return 2"),
    "layout": ("deeper", "return 2", "return (\n        2\n    )"),
}


@pytest.mark.parametrize("what", SILENT)
def test_a_change_of_anything_else_is_silent(digest_of: Digest, what: str) -> None:
    module, was, now = SILENT[what]
    assert digest_of({module: (was, now)}) == digest_of()


def test_a_helper_that_moves_to_another_module_says_the_same(digest_of: Digest) -> None:
    moved = {"helpers": PROJECT["helpers"].replace("deeper", "moved"), "moved": PROJECT["deeper"]}
    assert digest_of(**moved) == digest_of()


def test_code_that_reaches_by_no_name_has_all_of_its_module(digest_of: Digest) -> None:
    dynamic = TABLES.replace("LIMIT)", "globals()['LIMIT'])")
    unrelated = dynamic.replace("    return frame\n", "    return frame.limit(1)\n")
    assert digest_of(tables=dynamic) != digest_of(tables=unrelated)


def test_modules_that_import_each_other_end(digest_of: Digest) -> None:
    circle = {"deeper": "from shop import helpers\ndef factor():\n    return helpers.double and 2\n"}
    assert digest_of(**circle) == digest_of(**circle)
    assert digest_of(**circle) != digest_of({"helpers": ("x * factor()", "x + factor()")}, **circle)


@pytest.mark.tier2
def test_the_digest_is_the_same_in_each_process(tmp_path: Path) -> None:
    (tmp_path / "shop" / "rates").mkdir(parents=True)
    for name, text in {"__init__": "", **PROJECT}.items():
        (tmp_path / "shop" / f"{name}.py").write_text(text, encoding="utf-8")
    program = "from shop.tables import paid; from lakechime_dagster.lake.code_digests import code_digest; print(code_digest(paid))"
    found = {
        subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, text=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(found) == 1


def of(function: Any) -> str:
    return code_digest(spark_table("silver.paid", keys=["id"], reads={"orders": orders.changes()})(function))


def kept(factor: Any) -> Callable[..., Any]:
    def paid(orders: Any) -> Any:
        return orders * factor

    return paid


class Paid:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, orders: Any) -> Any:
        return orders * self.factor


def wrapped(function: Callable[..., Any], times: int) -> Callable[..., Any]:
    @functools.wraps(function)
    def several(orders: Any) -> Any:
        return [function(orders) for _ in range(times)]

    return several


def test_what_a_function_keeps_of_the_one_that_made_it_counts() -> None:
    assert of(kept(2)) == of(kept(2)) != of(kept(3))
    assert of(kept({"b", "a"})) == of(kept({"a", "b"}))
    assert of(kept(kept(2))) != of(kept(kept(3)))
    assert of(wrapped(kept(2), 2)) == of(wrapped(kept(2), 2))
    assert len({of(wrapped(kept(2), 2)), of(wrapped(kept(3), 2)), of(wrapped(kept(2), 3))}) == 3


def test_an_object_that_is_called_counts_with_what_it_has() -> None:
    assert of(Paid(2)) == of(Paid(2)) != of(Paid(3))
    assert of(functools.partial(Paid(2))) == of(functools.partial(Paid(2))) != of(functools.partial(Paid(3)))


def test_lambdas_of_one_maker_are_told_apart_by_their_text() -> None:
    first, second = (lambda orders: orders), (
        lambda orders: orders.limit(1)
    )  # fmt: skip
    assert of(first) != of(second)


SAME_AND_OTHER = ("SELECT 1 AS id FROM bronze.orders", "select 1 as id -- one\nfrom bronze.orders", "SELECT 2 AS id FROM bronze.orders")


def test_the_digest_of_sql_is_that_of_what_it_says() -> None:
    said, spaced, other = (sql_table("silver.paid", sql=sql, keys=["id"]) for sql in SAME_AND_OTHER)
    assert code_digest(said) == code_digest(spaced) != code_digest(other)
