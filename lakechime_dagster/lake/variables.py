"""Settings whose values may be those of variables of the environment: `$NAME`."""

import re
from collections.abc import Mapping

from lakechime_dagster.errors import InvalidValueError

_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")


def is_variable(value: str) -> bool:
    """Whether a value stands for that of a variable."""
    return _VARIABLE.fullmatch(value) is not None


def resolved(value: str, environment: Mapping[str, str], where: str, remedy: str = "set it where runs and sensors start") -> str:
    """A value, or what the environment says for its `$NAME`.

    Raises:
        InvalidValueError: It says nothing; `where` names what the value is of.
    """
    variable = _VARIABLE.fullmatch(value)
    if variable is None:
        return value
    if not environment.get(variable[1]):
        raise InvalidValueError(where, value, f"is {'empty' if variable[1] in environment else 'not'} in the environment; {remedy}")
    return environment[variable[1]]
