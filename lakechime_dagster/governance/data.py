"""Where the personal data of a lake is: declared, decided, found by a scan, and which columns it
reaches by lineage.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property, lru_cache
from types import MappingProxyType

from lakechime_dagster.dce.events import TableFormat
from lakechime_dagster.errors import LakeChimeError, NotFoundError, TableUnreadableError, needs
from lakechime_dagster.formats.delta_rows import DeltaRows
from lakechime_dagster.governance.propagation import propagated
from lakechime_dagster.governance.store import PersonalDecisions
from lakechime_dagster.governance.tags import (
    Decision,
    Leak,
    Tagged,
    declared_tags,
    leaks,
    public_tables,
)
from lakechime_dagster.lineage.columns import ColumnRef, Statement, pointer
from lakechime_dagster.lineage.declared import paths_of
from lakechime_dagster.lineage.graph import parts_of
from lakechime_dagster.lineage.network import Network, network_of
from lakechime_dagster.lineage.service import declared_statements, is_of_subscription
from lakechime_dagster.lineage.store import LineageStandings
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.silver.requests import event_types
from lakechime_dagster.silver.schema import personal_leaves
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.names import folded
from lakechime_dagster.tables.options import CATEGORY
from lakechime_dagster.triggers.registry import By

LEAST = 5  # values, below which a share says nothing
MAX_PATHS = 5_000  # that are looked at
MAX_NAMES = 100  # of fields at one path within JSON texts; further ones count as values
MAX_DEPTH = 20
MAX_VALUE = 320  # characters; no value of a validator is longer
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CARD = re.compile(r"\d(?:[ -]?\d){12,18}")
_END = re.compile(r"(:\$)?(\[\])*$")  # behind the last name of a path

SHARES: Mapping[str, float] = MappingProxyType(
    {"email": 0.1, "iban": 0.1, "phone": 0.1, "card": 0.8, "national_id": 0.8}
)
"""By category the share of valid values that speaks for it: one in eight numbers of sixteen digits
passes as that of a card.
"""

WORDS: Mapping[str, str] = MappingProxyType(
    {
        "email": "email, e mail, mail, mailbox",
        "ip": "ip, ip address, client ip, remote addr",
        "phone": "phone, telephone, tel, mobile, msisdn, cellphone, cell, fax, phone number",
        "name": "first name, last name, full name, given name, family name, middle name, maiden "
        "name, surname, firstname, lastname, "
        "fullname, forename, nickname, customer name, person name, contact name, user name, "
        "username",
        "birth_date": "birth date, birthdate, date of birth, dob, birthday, birth day",
        "postcode": "postcode, post code, postal code, zip, zip code, zipcode",
        "address": "address, street, house number, address line, addr",
        "iban": "iban, bank account, account number",
        "card": "card number, credit card, creditcard, cardnumber, pan, cc number",
        "national_id": "ssn, social security, national id, national insurance, nino, passport, "
        "passport number, identity card, id card, "
        "personal number, personnummer, bsn, pesel, cpf, dni, nie, nir, codice fiscale, aadhaar, "
        "tax id, tin, driving licence, "
        "drivers license, driver license",
        "plate": "license plate, licence plate, number plate",
        "location": "latitude, longitude, geo location, gps",
        "gender": "gender, sex",
        "health": "diagnosis, blood type, disease",
        "belief": "religion, ethnicity, political party",
    }
)
"""By category the words in names; the first category decides on a name that has several, such as
`email_address`.
"""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A column, or a path into one, that looks personal; of its `values` so many are `valid` ones,
    0 where no validator knows them.
    """

    column: str
    category: str
    by_name: bool
    values: int
    valid: int

    @property
    def share(self) -> float:
        return self.valid / self.values if self.values else 0.0


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What was found in so many rows; `left_out` paths were too many to be looked at."""

    rows: int
    proposals: tuple[Proposal, ...]
    left_out: int = 0


def scanned(
    columns: Iterable[str],
    rows: Iterable[Mapping[str, object]],
    validate: Callable[[str], Iterable[str]],
    known: Collection[str] = (),
) -> Scan:
    """Propose columns and paths of some rows, but those that are known or lie within one.

    Args:
        columns: All that the table has.
        rows: Some of it.
        validate: The categories of which a value is a valid one (`library_validator`).
        known: What is declared or decided.
    """
    leaves, values, valid = (
        _Leaves(),
        Counter[str](dict.fromkeys(columns, 0)),
        dict[str, Counter[str]](),
    )
    left_out, count = set[str](), 0
    for row in rows:
        count += 1
        for path, text in leaves.of(row):
            if path not in values and len(values) >= MAX_PATHS:
                left_out.add(path)
                continue
            values[path] += 1
            valid.setdefault(path, Counter()).update(validate(text))
    taken = tuple(folded(one) for one in known)
    inner = tuple(f"{name}{mark}" for name in taken for mark in ".:[")
    proposals = tuple(
        one
        for path in values
        if folded(path) not in taken and not folded(path).startswith(inner)
        for one in _proposals(path, values[path], valid.get(path, Counter()))
    )
    return Scan(rows=count, proposals=proposals, left_out=len(left_out))


def category_of(name: str) -> str | None:
    """What a name says to be in a column or field: `e_mail`, `userEmails` and `EMAIL_2` that it is
    an e-mail address.
    """
    text = _spaced(_WORD.findall(name))
    return next(
        (category for category, several in _SPACED.items() if any(one in text for one in several)),
        None,
    )


def library_validator() -> Callable[[str], Iterator[str]]:
    """The validators of libraries: the categories of which a value is a valid one.

    Raises:
        ImportError: the extra `personal` is not installed.
    """
    import phonenumbers
    from email_validator import EmailNotValidError, validate_email
    from stdnum import iban, luhn
    from stdnum.cn import ric
    from stdnum.es import dni, nie
    from stdnum.fi import hetu
    from stdnum.it import codicefiscale

    def is_email(text: str) -> bool:
        try:
            return "@" in text and bool(
                validate_email(text, check_deliverability=False, test_environment=True)
            )
        except EmailNotValidError:
            return False

    @lru_cache(maxsize=4096)
    def is_phone(text: str) -> bool:
        """With its country's number: without it, one in two numbers of ten digits is a phone number
        of somewhere.
        """
        try:
            return text.startswith("+") and phonenumbers.is_valid_number(
                phonenumbers.parse(text, None)
            )
        except phonenumbers.NumberParseException:
            return False

    checks: dict[str, Callable[[str], bool]] = {
        "email": is_email,
        "iban": iban.is_valid,
        "phone": is_phone,
        "card": lambda text: (
            _CARD.fullmatch(text) is not None and luhn.is_valid(re.sub("[ -]", "", text))
        ),
        "national_id": lambda text: any(
            one.is_valid(text) for one in (codicefiscale, dni, nie, hetu, ric)
        ),  # with letters
    }

    def validate(value: str) -> Iterator[str]:
        text = value.strip()
        return (
            iter(())
            if not text or len(text) > MAX_VALUE
            else (name for name, is_one in checks.items() if is_one(text))
        )

    return validate


def _proposals(path: str, values: int, valid: Counter[str]) -> Iterator[Proposal]:
    named = category_of(_END.sub("", path).rsplit(".", 1)[-1])
    categories: set[str] = {*SHARES} if named is None else {*SHARES, named}
    for category in sorted(categories):
        is_enough = (
            category in SHARES and values >= LEAST and valid[category] >= SHARES[category] * values
        )
        if is_enough or category == named:
            yield Proposal(
                column=path,
                category=category,
                by_name=category == named,
                values=values,
                valid=valid[category],
            )


def _spaced(words: Iterable[str]) -> str:
    """Words with a space on both sides, as one thing: `emails` is `email`."""
    return (
        f" "
        f"{' '.join(word.lower() if len(word) < 4 else word.lower().removesuffix('s') for word in words)} "
    )


_SPACED = {
    category: tuple(_spaced(one.split()) for one in several.split(", "))
    for category, several in WORDS.items()
}


@dataclass
class _Leaves:
    """The single values of rows by their paths, as rows are looked at one after the other."""

    _names: dict[str, set[str]] = field(default_factory=dict)

    def of(self, row: Mapping[str, object]) -> Iterator[tuple[str, str]]:
        """Each value of a row as text, with its path; nothing of what is null, a time or true or
        false.
        """
        for name, value in row.items():
            yield from self._of(name, value, 0)

    def _of(self, path: str, value: object, depth: int) -> Iterator[tuple[str, str]]:
        match value:
            case bytes():
                yield from self._of(path, value.decode("utf-8", "ignore"), depth)
            case str():
                parsed = _parsed(value)
                if parsed is None:
                    yield _shown(path), value
                elif ":$" not in path:
                    yield from self._within(f"{path}:$", parsed, depth)
                else:  # a text within a text, into which no path leads
                    yield from (
                        (_shown(path), text)
                        for _, text in _Leaves()._within(":$", parsed, depth + 1)
                    )
            case bool():
                return
            case int() | float() | Decimal():
                yield _shown(path), str(value)
            case _ if ":$" in path:
                yield from self._within(path, value, depth)
            case Mapping():
                for name, one in value.items():
                    yield from self._of(f"{path}.{name}", one, depth + 1)
            case list() | tuple():
                yield from self._elements(path, value, depth)

    def _elements(
        self, path: str, several: Iterable[object], depth: int
    ) -> Iterator[tuple[str, str]]:
        """Of an array, or of a map, whose keys are values too."""
        for one in several:
            for value in one if isinstance(one, tuple) else (one,):
                yield from self._of(path, value, depth + 1)

    def _within(self, path: str, value: object, depth: int) -> Iterator[tuple[str, str]]:
        if depth > MAX_DEPTH:
            return
        if isinstance(value, Mapping):
            for name, one in value.items():
                if self._is_field(path, name):
                    yield from self._of(f"{path}.{name}", one, depth + 1)
                else:
                    yield _shown(path), name
                    yield from self._of(path, one, depth + 1)
        elif isinstance(value, list):
            for one in value:
                yield from self._of(f"{path}[]", one, depth + 1)

    def _is_field(self, path: str, name: str) -> bool:
        names = self._names.setdefault(path, set())
        if name in names:
            return True
        if not NAME.fullmatch(name) or len(names) >= MAX_NAMES:
            return False
        names.add(name)
        return True


def _shown(path: str) -> str:
    return path.removesuffix(":$")


def _parsed(text: str) -> object:
    """The object or array that a text is; None of any other."""
    if text[:1] not in "{[" or not text:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None


@dataclass(frozen=True)
class PersonalData:
    """The personal columns of a lake, and the columns that they reach by lineage."""

    platform: Platform
    lake: Lake

    @cached_property
    def declared(self) -> Mapping[ColumnRef, str]:
        """Categories of the columns that the lake declares, those of the tables of its events'
        types among them.
        """
        return declared_tags(self.lake) | _type_tags(self.platform, self.lake)

    @cached_property
    def decided(self) -> Mapping[ColumnRef, Decision]:
        """What people decided of columns that are not declared."""
        known = {_folded(ref) for ref in self.declared}
        holding = PersonalDecisions(self.platform.store.engine).holding()
        return {ref: one for ref, one in holding.items() if _folded(ref) not in known}

    @property
    def tags(self) -> Mapping[ColumnRef, str]:
        """Categories of the columns that are known to be personal."""
        return {
            **self.declared,
            **{ref: one.category for ref, one in self.decided.items() if one.category is not None},
        }

    @property
    def cleared(self) -> Collection[ColumnRef]:
        """The columns that hold nothing personal by what people decided."""
        return [ref for ref, one in self.decided.items() if one.category is None]

    def found(self, network: Network, within: Collection[str] | None = None) -> tuple[Tagged, ...]:
        """All that the known columns lead to, themselves among them, or what of it is in some data
        sets.
        """
        return propagated(network, self.tags, self.cleared, within) if self.tags else ()

    def leaks(self, found: Iterable[Tagged]) -> tuple[Leak, ...]:
        """What of it is surely wrong."""
        return leaks(found, self.tags, public_tables(self.lake), levels_of(self.lake))

    def network_above(self, table: str, instead: Statement | None = None) -> Network:
        """What leads to a table, as it is known by now, without a look at what does not.

        With `instead` that is taken for all that is known of the table itself: what it is about to
        be written from.
        """
        known = LineageStandings(self.platform.store.engine)
        declared: dict[str, list[Statement]] = {}
        for one in declared_statements(self.lake):
            declared.setdefault(one.target, []).append(one)
        recorded, beside, seen, layer, own = (
            list[Statement](),
            list[Statement](),
            {table},
            {table},
            set[str](),
        )
        if instead is not None:
            recorded, layer, own = [instead], {*parts_of(instead)} - seen, {table}
            seen |= layer
        while layer:
            standing = known.of_targets(layer)
            own |= {
                one.statement.target
                for one in standing
                if is_of_subscription(self.platform, self.lake, one)
            }
            new = [one.statement for one in standing]
            more = [one for name in layer for one in declared.get(name, ())]
            recorded, beside = [*recorded, *new], [*beside, *more]
            layer = {name for one in [*new, *more] for name in parts_of(one)} - seen
            seen |= layer
        return network_of(recorded, beside, own)

    def decide(self, ref: ColumnRef, category: str | None, by: By) -> None:
        """Keep a person's word about a column.

        Raises:
            LakeChimeError: the lake declares it, or there is no such category.
        """
        if category is not None and not CATEGORY.fullmatch(category):
            raise LakeChimeError(
                f"{category!r} is no category: write a word of small letters, digits and _, such "
                f"as email, or not"
            )
        declared = next(
            (one for name, one in self.declared.items() if _folded(name) == _folded(ref)), None
        )
        if declared is not None:
            raise LakeChimeError(
                f'{ref} is declared personal("{declared}"); what is declared holds: change the '
                f"declaration"
            )
        PersonalDecisions(self.platform.store.engine).decide(ref, category, by)


def scan_table(data: PersonalData, table: str, sample: int) -> Scan:
    """What looks personal in a table's columns and in so many of its rows, but for what is declared
    or decided.

    Raises:
        NotFoundError: there is no such table.
        TableUnreadableError: it cannot be read.
        MissingExtraError: the validators are not installed.
    """
    with needs("a scan of values", extra="personal"):
        validate = library_validator()
    declared = data.lake.table(table)
    if declared.format is not TableFormat.DELTA:
        raise TableUnreadableError(
            f"{table} is no Delta table; `lakechime personal show --scan` reads only those"
        )
    log = data.platform.log(table, declared.location)
    rows = DeltaRows(log)
    columns = rows.types()
    if not columns:
        raise NotFoundError(
            f"{table} does not exist yet: nothing was written at {log.shown_location}"
        )
    known = [str(ref.column) for ref in (*data.declared, *data.decided) if ref.table == table]
    return scanned(columns, rows.select(limit=sample), validate, known)


def levels_of(lake: Lake) -> dict[str, tuple[str, ...]]:
    """The names of the partition levels of each table of a lake."""
    return {name: one.names for name, one in lake.levels.items()}


def _type_tags(platform: Platform, lake: Lake) -> dict[ColumnRef, str]:
    """Columns of the tables of types, and of the events that they are made of, by the paths that
    their groups declare.
    """
    tags: dict[ColumnRef, str] = {}
    for group in lake.groups:
        if not group.personal:
            continue
        for one in event_types(platform).types(group.name).values():
            table, paths = one.table, paths_of(one.schema)
            for name, pattern in personal_leaves(one.schema, group.personal):
                category = group.personal[pattern].category
                tags[ColumnRef(table, name)] = category
                if len(several := paths.get(name, ())) == 1:
                    tags[ColumnRef(group.stream.table.name, pointer(*several[0]))] = category
    return tags


def _folded(ref: ColumnRef) -> tuple[str, str]:
    return ref.table, folded(ref.column or "")
