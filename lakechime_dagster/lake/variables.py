"""Settings whose values may be those of variables of the environment: `$NAME`."""

import re
from collections.abc import Mapping

from lakechime_dagster.errors import InvalidValueError

VARIABLE = re.compile(r"\$([A-Za-z_]\w*)")


def resolved(settings: Mapping[str, str], environment: Mapping[str, str], where: str) -> dict[str, str]:
    """The settings, with what the environment says for each `$NAME`.

    Raises:
        InvalidValueError: It says nothing for one of them; `where` names what they are of.
    """
    found = {}
    for name, value in settings.items():
        variable = VARIABLE.fullmatch(value)
        if variable and variable[1] not in environment:
            raise InvalidValueError(f"{where}[{name!r}]", value, "is not in the environment; set it where runs and sensors start")
        found[name] = environment[variable[1]] if variable else value
    return found
