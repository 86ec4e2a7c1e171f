"""What values look like, by validators of libraries; needs the extra `personal`."""

import ipaddress
import re
from collections.abc import Callable, Iterator
from functools import lru_cache

import phonenumbers
from email_validator import EmailNotValidError, validate_email
from stdnum import iban, luhn
from stdnum.be import nn
from stdnum.br import cpf
from stdnum.cn import ric
from stdnum.de import idnr
from stdnum.dk import cpr
from stdnum.es import dni, nie
from stdnum.fi import hetu
from stdnum.fr import nir
from stdnum.gb import nhs
from stdnum.it import codicefiscale
from stdnum.nl import bsn
from stdnum.no import fodselsnummer
from stdnum.pl import pesel
from stdnum.se import personnummer
from stdnum.us import ssn

MAX_VALUE = 320  # characters; what is longer is no e-mail address, and no other single value of a person
_CARD = re.compile(r"\d(?:[ -]?\d){12,18}")
_LETTERED = (codicefiscale, dni, nie, hetu, ric)  # whose form alone is seldom met elsewhere
_NUMBERS = (ssn, bsn, pesel, nir, idnr, personnummer, cpf, cpr, nn, nhs, fodselsnummer)


def looks_like(value: str) -> Iterator[str]:
    """The categories of which a value may be, each with its kind of evidence: those of `proposals.EVIDENCE`."""
    text = value.strip()
    if not text or len(text) > MAX_VALUE:
        return
    yield from (name for name, is_one in _CHECKS.items() if is_one(text))


def _is_email(text: str) -> bool:
    if "@" not in text:
        return False
    try:
        validate_email(text, check_deliverability=False, test_environment=True)
    except EmailNotValidError:
        return False
    return True


def _is_international(text: str) -> bool:
    return text.startswith("+") and _is_phone(text, None)


def _is_local(text: str) -> bool:
    return text[0] in "(0123456789" and len(text) <= 24 and _is_phone(text, "US")


@lru_cache(maxsize=4096)
def _is_phone(text: str, region: str | None) -> bool:
    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(text, region))
    except phonenumbers.NumberParseException:
        return False


def _is_card(text: str) -> bool:
    return _CARD.fullmatch(text) is not None and luhn.is_valid(text.replace(" ", "").replace("-", ""))


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_lettered(text: str) -> bool:
    return any(one.is_valid(text) for one in _LETTERED)


def _is_number(text: str) -> bool:
    return any(one.is_valid(text) for one in _NUMBERS)


_CHECKS: dict[str, Callable[[str], bool]] = {
    "email": _is_email, "iban": iban.is_valid, "phone": _is_international, "local_phone": _is_local, "card": _is_card, "ip": _is_ip,
    "lettered_id": _is_lettered, "numbered_id": _is_number,
}  # fmt: skip
