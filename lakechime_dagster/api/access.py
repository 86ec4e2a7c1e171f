"""What a request to the HTTP server may do."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.errors import LakeChimeError


class Scope(StrEnum):
    """What a token lets a program do: register events and lineage, read, or operate triggers."""

    REGISTER = "register"
    READ = "read"
    OPERATE = "operate"


class ForbiddenError(LakeChimeError):
    """A token does not let its program do this."""


@dataclass(frozen=True)
class Access:
    """What a request may do, and of which tables it may register events."""

    name: str
    scopes: frozenset[Scope]
    tables: tuple[str, ...] = ("*",)

    def check(self, scope: Scope) -> None:
        """Refuse what needs a scope that the token does not have."""
        if scope not in self.scopes:
            raise ForbiddenError(
                f"token {self.name} may not {scope}; use one with this scope (`lakechime token "
                f"create --scope {scope}`)"
            )

    def check_table(self, table: str) -> None:
        """Refuse an event of a table that fits none of the token's patterns."""
        if not any(fnmatchcase(table, pattern) for pattern in self.tables):
            raise ForbiddenError(
                f"token {self.name} may register events of {', '.join(self.tables)}, not of {table}"
            )


EVERYTHING = Access("LAKECHIME_API_TOKEN", frozenset(Scope))
WITHOUT_TOKEN = Access("a program on the server's machine", frozenset(Scope))
