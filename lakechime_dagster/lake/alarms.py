"""Where a lake tells people that a check fails: URLs by which apprise reaches them."""

import re
from collections.abc import Iterable, Mapping

from lakechime_dagster.errors import DeclarationError, InvalidValueError

SEND = "send"  # what the setting says for the lake's own URLs
REMEDY = "is neither a URL of apprise, such as mailto://user@host or slack://…, nor $NAME of a variable that holds one"
_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)


def checked_alarms(lake: str, alarms: Iterable[str]) -> tuple[str, ...]:
    """The declared URLs, or `$NAME`s of variables that hold them.

    Raises:
        DeclarationError: one is neither; it is not shown, as it may be a secret.
    """
    given = (alarms,) if isinstance(alarms, str) else tuple(alarms)
    for number, one in enumerate(given):
        if not isinstance(one, str) or not is_alarm(one):
            raise DeclarationError(f"Lake {lake}", f"alarms[{number}]", REMEDY)
    return given


def is_alarm(text: str) -> bool:
    return bool(_VARIABLE.fullmatch(text) or _URL.fullmatch(text))


def destinations(declared: Iterable[str], setting: str, environment: Mapping[str, str]) -> list[str]:
    """To which URLs alarms go: by the setting `send` to the declared ones, otherwise to those that it names; none is a dry run.

    Raises:
        InvalidValueError: One is no URL, or the variable that holds one is not in the environment; no URL is shown.
    """
    named = list(declared) if setting == SEND else setting.split()
    if setting == SEND and not named:
        raise InvalidValueError(
            "LAKECHIME_ALARMS", setting, "sends to the alarms of the lake, which declares none; write Lake(…, alarms=[…])"
        )
    found = []
    for number, one in enumerate(named, start=1):
        if not is_alarm(one):
            raise InvalidValueError("LAKECHIME_ALARMS", "…", f"its part {number} {REMEDY}; or write {SEND} alone")
        url = environment.get(one[1:], "") if one.startswith("$") else one
        if not url:
            raise InvalidValueError("alarms", one, "is not in the environment; set it to a URL of apprise")
        found.append(url)
    return found
