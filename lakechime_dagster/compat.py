"""What Python 3.10 lacks of the standard library of 3.11; goes with it."""

import datetime as dt
import re
import sys

if sys.version_info >= (3, 11):
    from datetime import UTC
    from enum import StrEnum

    import tomllib

    date_of_iso = dt.date.fromisoformat
    datetime_of_iso = dt.datetime.fromisoformat
else:
    from enum import Enum

    import tomli as tomllib  # Dagster requires it

    UTC = dt.timezone.utc
    _DATE = r"(\d{4})(-?)(\d\d)\2(\d\d)"
    _TIME = r"(\d\d)(?:(:?)(\d\d)(?:\6(\d\d)(?:[.,](\d+))?)?)?"
    _ZONE = r"(Z|[+-]\d\d(?::?\d\d(?::?\d\d(?:[.,]\d+)?)?)?)?"
    _MOMENT = re.compile(f"{_DATE}(?:.{_TIME}{_ZONE})?", re.DOTALL)

    class StrEnum(str, Enum):
        """Members that are texts, and are printed and formatted as such."""

        __str__ = str.__str__
        __format__ = str.__format__

        @staticmethod
        def _generate_next_value_(name: str, start: int, count: int, last_values: list[str]) -> str:
            return name.lower()

    def datetime_of_iso(text: str) -> dt.datetime:
        """As `datetime.fromisoformat` of 3.11, but for dates by weeks.

        Raises:
            ValueError: the text is no moment of ISO 8601.
        """
        if (found := _MOMENT.fullmatch(text)) is None:
            raise ValueError(f"Invalid isoformat string: {text!r}")
        year, _, month, day, hour, _, minute, second, fraction, zone = found.groups()
        time = (
            f"{hour or '00'}:{minute or '00'}:{second or '00'}.{(fraction or '').ljust(6, '0')[:6]}"
        )
        moment = dt.datetime.fromisoformat(f"{year}-{month}-{day}T{time}")
        return moment if zone is None else moment.replace(tzinfo=_zone(zone))

    def date_of_iso(text: str) -> dt.date:
        """As `date.fromisoformat` of 3.11, but for dates by weeks."""
        if re.fullmatch(_DATE, text) is None:
            raise ValueError(f"Invalid isoformat string: {text!r}")
        return datetime_of_iso(text).date()

    def _zone(text: str) -> dt.timezone:
        digits = "" if text == "Z" else re.sub(r"[+:-]", "", text)
        parts = [int(digits[at : at + 2]) for at in range(0, min(len(digits), 6), 2)]
        offset = dt.timedelta(**dict(zip(("hours", "minutes", "seconds"), parts, strict=False)))
        return dt.timezone(-offset if text.startswith("-") else offset)


__all__ = ["UTC", "StrEnum", "date_of_iso", "datetime_of_iso", "tomllib"]
