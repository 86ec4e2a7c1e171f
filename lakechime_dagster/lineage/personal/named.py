"""Which names of columns and fields say that personal data is in them."""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "email": ("email", "e mail", "mail", "mailbox"),
    "ip": ("ip", "ip address", "client ip", "remote addr"),
    "phone": ("phone", "telephone", "tel", "mobile", "msisdn", "cellphone", "cell", "fax", "phone number"),
    "name": (
        "first name", "last name", "full name", "given name", "family name", "middle name", "maiden name", "surname", "firstname",
        "lastname", "fullname", "forename", "nickname", "customer name", "person name", "contact name", "user name", "username",
    ),
    "birth_date": ("birth date", "birthdate", "date of birth", "dob", "birthday", "birth day"),
    "postcode": ("postcode", "post code", "postal code", "zip", "zip code", "zipcode"),
    "address": ("address", "street", "house number", "address line", "addr"),
    "iban": ("iban", "bank account", "account number"),
    "card": ("card number", "credit card", "creditcard", "cardnumber", "pan", "cc number"),
    "national_id": (
        "ssn", "social security", "national id", "national insurance", "nino", "passport", "passport number", "identity card", "id card",
        "personal number", "personnummer", "bsn", "pesel", "cpf", "dni", "nie", "nir", "codice fiscale", "aadhaar", "tax id", "tin",
        "driving licence", "drivers license", "driver license",
    ),
    "plate": ("license plate", "licence plate", "number plate"),
    "location": ("latitude", "longitude", "geo location", "gps"),
    "gender": ("gender", "sex"),
    "health": ("diagnosis", "blood type", "disease"),
    "belief": ("religion", "ethnicity", "political party"),
})  # fmt: skip
"""By category the words, of which those that come first decide on a name that has several, such as `email_address`."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def category_of(name: str) -> str | None:
    """What a name says to be in a column or field: `e_mail`, `userEmails` and `EMAIL_2` that it is an e-mail address."""
    text = _spaced(_WORD.findall(name))
    return next((category for category, several in _SPACED.items() if any(one in text for one in several)), None)


def _spaced(words: Iterable[str]) -> str:
    """Words with a space on both sides, as one thing: `emails` is `email`."""
    return f" {' '.join(word.lower() if len(word) < 4 else word.lower().removesuffix('s') for word in words)} "


_SPACED = {category: tuple(_spaced(one.split()) for one in several) for category, several in WORDS.items()}
