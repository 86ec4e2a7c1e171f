"""The channels of owners: names of environment variables, each of which holds one URL of apprise for one recipient."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from lakechime_dagster.errors import InvalidValueError, LakeChimeError

SETTING = "LAKECHIME_NOTIFICATION_URLS"
EXAMPLE = """write such as '{"team:ops": "$OPS_SLACK", "*@*": "$MAIL"}'"""
OTHERS, ADDRESSES = "*", "*@*"  # owners without channels of their own, and those of them that are addresses of e-mail
OWNER = "{owner}"  # in a URL: the owner's address
_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]{0,126}", re.ASCII)


class NoAddressError(LakeChimeError):
    """A channel leads nowhere, as the environment does not hold its URL, or the URL is none for one recipient; it is not shown."""


@dataclass(frozen=True)
class Channels:
    """The channels of owners, as the setting names them; none of it is secret, as URLs stand in the variables alone."""

    by_owner: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    def of(self, owner: str) -> tuple[str, ...]:
        """The owner's own channels, else those of all addresses, else those of all others; empty where there is none."""
        names = (owner, ADDRESSES, OTHERS) if "@" in owner else (owner, OTHERS)
        return next((self.by_owner[name] for name in names if name in self.by_owner), ())


def channels_of(setting: str) -> Channels:
    """What the setting says: a JSON object of owners, each with a name or a list of names of variables.

    Raises:
        InvalidValueError: it is something else; what could be a secret is not shown.
    """
    if not setting.strip():
        return Channels()
    try:
        document = json.loads(setting)
    except (ValueError, RecursionError):
        raise InvalidValueError(SETTING, "…", f"is not JSON; {EXAMPLE}") from None
    if not isinstance(document, dict):
        raise InvalidValueError(SETTING, "…", f"is not a JSON object; {EXAMPLE}")
    return Channels({owner: _names(owner, given) for owner, given in document.items()})


def address_of(channel: str, owner: str, environment: Mapping[str, str]) -> str:
    """The URL that a channel stands for.

    Raises:
        NoAddressError: the environment does not hold it, or it asks for an address that the owner is not.
    """
    url = environment.get(channel[1:], "")
    if not url:
        raise NoAddressError(f"{channel} is not in the environment; set it to a URL of apprise for one recipient, as mailto://…")
    if OWNER in url and "@" not in owner:
        raise NoAddressError(f"{channel} is for owners that are addresses of e-mail; give {owner} a channel of its own in {SETTING}")
    return url.replace(OWNER, quote(owner, safe=""))


def _names(owner: str, given: object) -> tuple[str, ...]:
    names = given.split() if isinstance(given, str) else given
    if not isinstance(names, list) or not names:
        raise InvalidValueError(SETTING, "…", f"has no name of a variable for {owner}; {EXAMPLE}")
    for one in names:
        if not isinstance(one, str) or not _VARIABLE.fullmatch(one):
            raise InvalidValueError(SETTING, "…", f"has for {owner} what is no $NAME of a variable that holds a URL; {EXAMPLE}")
    return tuple(dict.fromkeys(names))
