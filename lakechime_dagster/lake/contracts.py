"""What a group lets its events change, and what people say of single paths."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.errors import DeclarationError, keep_or_raise, shown
from lakechime_dagster.lake.type_patterns import is_matched, overlap, specificity

MAX_COLUMNS = 500  # of single values that a type gets, unless its contract says otherwise
MOST_COLUMNS = 5_000  # that a contract may say
MAX_TYPES = 1_000  # tables of a group, unless its contract says otherwise
MODES = ("tables", "columns", "kinds")  # of a contract, each by its own mode


class Mode(StrEnum):
    """What becomes of something new.

    Attributes:
        EVOLVE: It gets a table, a column, or a sibling of one.
        FREEZE: It gets none; its values are kept in `_rescued`, as frozen, and events of a new type wait in bronze.
        RESCUE: The same, as of an unknown path, without a word to anybody.
        DISCARD_VALUE: Its values are left out, and counted.
        DISCARD_ROW: Events with it are left out, and counted.
        VARIANT: Of kinds alone: one sibling of Spark's VARIANT takes all further kinds of a path, and shuts out readers that have none.
    """

    EVOLVE = "evolve"
    FREEZE = "freeze"
    RESCUE = "rescue"
    DISCARD_VALUE = "discard_value"
    DISCARD_ROW = "discard_row"
    VARIANT = "variant"


class Change(StrEnum):
    """Something new that may come.

    Attributes:
        TABLE: Of a new type.
        COLUMN: Of a new field of the event itself.
        FIELD: Of a new field of an object within.
        NUMBER: A sibling, for numbers of another kind than those of the column.
        KIND: A sibling for values of any other kind.
    """

    TABLE = "table"
    COLUMN = "column"
    FIELD = "field"
    NUMBER = "number"
    KIND = "kind"

    @property
    def of(self) -> str:
        """Which of MODES decides of it."""
        return {Change.TABLE: "tables", Change.NUMBER: "kinds", Change.KIND: "kinds"}.get(self, "columns")


class Pin(StrEnum):
    """The type that a column has from its birth.

    Attributes:
        DOUBLE: Whole numbers are held too, where a double is exactly that number.
        JSON: The text of whatever is there; how objects whose fields are ids are kept.
        IGNORE: No column; its values are left out.
    """

    BOOL = "bool"
    LONG = "long"
    BIGINT = "bigint"
    DOUBLE = "double"
    STRING = "string"
    JSON = "json"
    IGNORE = "ignore"


@dataclass(frozen=True, kw_only=True)
class PathRule:
    """What may change at the paths of a pattern; of what it does not say, what is less specific decides."""

    columns: str | Mode | None = None
    kinds: str | Mode | None = None
    problem: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            self._check()
        except DeclarationError as error:
            keep_or_raise(self, error)

    def _check(self) -> None:
        for name in ("columns", "kinds"):
            said = getattr(self, name)
            object.__setattr__(self, name, None if said is None else _mode("PathRule", name, said))
        if self.columns is None and self.kinds is None:
            raise DeclarationError(
                "PathRule", "columns", "and kinds are not said, so that it says nothing; write PathRule(columns='freeze')"
            )


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What may change: tables of new types, columns of new paths, siblings for new kinds of values.

    What a table, or an object within it, is born with comes along whatever is said of columns: that is no change.

    Attributes:
        is_double_first: A number's column is a double from its birth, unless it is pinned.
        pins: The types that columns have from their birth, by path: `{"/items[]/price": "double"}`.
        paths: Rules by patterns of paths, such as `/payload/*`, in which `*` stands for any text; of those that match a path the
            one holds that says most of it.
        include: The changes that may come at all; all of them, where none is named.
        exclude: Those that may not: they are as under `rescue`, a table as under `freeze`, but where a rule for a path says more.
        shared: Rules of the group for paths, of which those hold that say more of a path than any of `paths`.
        problem: What is wrong with it, where a lake is loaded; the group that has it fails.
        max_columns: How many columns of single values a type gets at most; the group's, or MAX_COLUMNS, where it is not said.
        max_types: How many tables a group has at most; events of further types wait in the stream's table.
    """

    tables: str | Mode = Mode.EVOLVE
    columns: str | Mode = Mode.EVOLVE
    kinds: str | Mode = Mode.EVOLVE
    is_double_first: bool = False
    pins: Mapping[str, Pin | str] = field(default_factory=dict, hash=False)
    paths: Mapping[str, PathRule] = field(default_factory=dict, hash=False)
    include: Collection[str | Change] = ()
    exclude: Collection[str | Change] = ()
    shared: Mapping[str, PathRule] = field(default_factory=dict, hash=False)
    max_columns: int | None = None
    max_types: int = MAX_TYPES
    problem: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            self._check()
        except DeclarationError as error:
            keep_or_raise(self, error)

    def _check(self) -> None:
        for name in MODES:
            object.__setattr__(self, name, _mode("Contract", name, getattr(self, name)))
        for name in ("include", "exclude"):
            object.__setattr__(self, name, _changes(name, getattr(self, name)))
        if both := {*self.include} & {*self.exclude}:
            raise DeclarationError("Contract", "exclude", f"{', '.join(sorted(both))} is included too; leave it out of one of them")
        object.__setattr__(self, "pins", _pins(self.pins))
        _check_paths(self.paths)
        most = self.max_columns
        if most is not None and (type(most) is not int or not 1 <= most <= MOST_COLUMNS):
            raise DeclarationError("Contract", "max_columns", f"{shown(most)} is no number of columns from 1 to {MOST_COLUMNS}")
        if type(self.max_types) is not int or self.max_types < 1:
            raise DeclarationError("Contract", "max_types", f"{shown(self.max_types)} is no number of tables, 1 or more")

    @property
    def column_cap(self) -> int:
        """How many columns of single values a type gets at most."""
        return self.max_columns or MAX_COLUMNS

    def mode(self, change: Change, path: str = "") -> Mode:
        """What becomes of a change at a path, as the most specific rule says."""
        for pattern, rule in self._ranked:
            said = getattr(rule, change.of, None)
            if said is not None and is_matched(pattern, path):
                return Mode(said)
        if change in self.excluded:
            return Mode.FREEZE if change is Change.TABLE else Mode.RESCUE
        return Mode(getattr(self, change.of))

    @cached_property
    def excluded(self) -> frozenset[Change]:
        """The changes that may not come."""
        left_out = {*Change} - {*self.include} if self.include else set[Change]()
        return frozenset(left_out | {*map(Change, self.exclude)})

    @cached_property
    def _ranked(self) -> list[tuple[str, PathRule]]:
        """The rules for paths, those first that say most; of two that say as much its own before the group's."""
        return sorted([*self.paths.items(), *self.shared.items()], key=lambda one: -specificity(one[0]))

    def within(self, group: "Contract") -> "Contract":
        """The contract of a single type in that of its group, of which it keeps what is said of paths, and doubles first."""
        return replace(
            self,
            pins={**group.pins, **self.pins},
            shared=group.paths,
            is_double_first=self.is_double_first or group.is_double_first,
            max_columns=self.max_columns or group.max_columns,
        )

    def to_json(self) -> dict[str, Any]:
        """What it says, for people; what is as ever is left out, but for the modes."""
        told: dict[str, Any] = {name: str(getattr(self, name)) for name in MODES}
        told |= {"excluded": sorted(self.excluded)} if self.excluded else {}
        rules = {pattern: {name: str(said) for name in MODES[1:] if (said := getattr(rule, name))} for pattern, rule in self._ranked[::-1]}
        told |= {"paths": dict(sorted(rules.items()))} if rules else {}
        told |= {"max columns": self.column_cap} if self.column_cap != MAX_COLUMNS else {}
        return {**told, "double first": self.is_double_first, "pins": {path: str(pin) for path, pin in self.pins.items()}}


@dataclass(frozen=True, kw_only=True)
class Hint:
    """What a person says of a type beside what is declared.

    Attributes:
        of: A path, such as `/items[]/price`, of which `says` is a Pin; or `tables`, `columns`, `kinds`, of which it is a Mode.
    """

    type: str
    of: str
    says: str

    def __post_init__(self) -> None:
        if self.of in MODES:
            _mode("Hint", self.of, self.says)
            return
        if not self.of.startswith("/"):
            raise DeclarationError("Hint", "of", f"{shown(self.of)} is no path; write such as '/price' or '/items[]/price'")
        if self.says not in tuple(Pin):
            raise DeclarationError("Hint", "says", f"{shown(self.says)} is none of {', '.join(Pin)}")


def with_hint(contract: Contract, hint: Hint) -> Contract:
    """A contract with what a person says beside it, which holds against all that was said of the same before, of single paths too."""
    if hint.of not in MODES:
        return replace(contract, pins={**contract.pins, hint.of: Pin(hint.says)})
    excluded = [one for one in contract.excluded if one.of != hint.of]
    rules = {"paths": _without(contract.paths, hint.of), "shared": _without(contract.shared, hint.of)}
    return replace(contract, **{hint.of: hint.says}, **rules, include=(), exclude=sorted(excluded))


def _without(paths: Mapping[str, PathRule], mode: str) -> dict[str, PathRule]:
    """Rules that say nothing of one of MODES."""
    other = {"columns": "kinds", "kinds": "columns"}.get(mode)
    if other is None:
        return dict(paths)
    return {pattern: PathRule(**{other: said}) for pattern, rule in paths.items() if (said := getattr(rule, other)) is not None}


def _mode(who: str, name: str, value: object) -> Mode:
    try:
        mode = Mode(str(value))
    except ValueError:
        raise DeclarationError(who, name, f"{shown(value)} is none of {', '.join(Mode)}") from None
    if name == "tables" and mode not in (Mode.EVOLVE, Mode.FREEZE):
        raise DeclarationError(who, name, f"{shown(value)} is neither {Mode.EVOLVE} nor {Mode.FREEZE}, in which events wait in bronze")
    if name == "columns" and mode is Mode.VARIANT:
        raise DeclarationError(who, name, f"{shown(value)} is of kinds alone, as a column of a new path has the type of what comes")
    return mode


def _pins(pins: object) -> dict[str, Pin]:
    if not isinstance(pins, Mapping):
        raise DeclarationError("Contract", "pins", f'{shown(pins)} is no map of paths, such as {{"/price": "double"}}')
    for path, kind in pins.items():
        if not isinstance(path, str) or not path.startswith("/"):
            raise DeclarationError("Contract", "pins", f"{shown(path)} is no path; write such as '/price' or '/items[]/price'")
        if kind not in tuple(Pin):
            raise DeclarationError("Contract", "pins", f"{shown(kind)} of {path} is none of {', '.join(Pin)}")
    return {path: Pin(kind) for path, kind in pins.items()}


def _changes(name: str, values: object) -> tuple[Change, ...]:
    several = (values,) if isinstance(values, str) or not isinstance(values, Collection) else values
    try:
        return tuple(sorted({Change(str(one)) for one in several}))
    except ValueError:
        raise DeclarationError("Contract", name, f"{shown(values)} is not made of {', '.join(Change)}") from None


def _check_paths(paths: object) -> None:
    if not isinstance(paths, Mapping):
        problem = f'{shown(paths)} is no map of paths, such as {{"/payload/*": PathRule(columns="freeze")}}'
        raise DeclarationError("Contract", "paths", problem)
    for pattern, rule in paths.items():
        if not isinstance(pattern, str) or not pattern.startswith("/"):
            raise DeclarationError("Contract", "paths", f"{shown(pattern)} is no pattern of paths; write such as '/payload/*'")
        if not isinstance(rule, PathRule):
            raise DeclarationError("Contract", "paths", f"{shown(rule)} of {pattern} is no PathRule(columns=…, kinds=…)")
        if rule.problem:
            raise DeclarationError("Contract", "paths", f"{pattern}: {rule.problem}")
    for one, other in combinations(paths, 2):
        if specificity(one) == specificity(other) and overlap(one, other):
            problem = f"{other!r} matches paths that {one!r} matches too, and says as much of them; make one of them longer"
            raise DeclarationError("Contract", "paths", problem)
