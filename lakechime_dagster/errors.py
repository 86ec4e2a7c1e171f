"""The errors a user of lakechime_dagster can meet, each saying what to do about it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from urllib.parse import unquote

_PASSWORD = re.compile(r"^((?:[\w+.-]+://|(?![\w+.-]+://))[^:/?]*):.*@", re.DOTALL)
# in the key of a query
_SECRET = re.compile(r"pass|secret|sig|token|credential|account_?key", re.IGNORECASE)


class LakeChimeError(Exception):
    """Something a user or an operator can answer; the message names the remedy."""


class MissingExtraError(LakeChimeError, ImportError):
    """A package that an extra of lakechime-dagster brings is not installed."""


class InvalidValueError(LakeChimeError, ValueError):
    """A value from outside breaks a rule; names field, value and remedy."""

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field = field
        self.value = value
        self.remedy = remedy
        super().__init__(f"{field} {shown(value)}: {remedy}")


class DeclarationError(LakeChimeError, ValueError):
    """A declaration of a table, trigger or lake cannot work; names the table and the field."""

    def __init__(self, declared: str, field: str, remedy: str) -> None:
        self.declared = declared
        self.field = field
        self.remedy = remedy
        super().__init__(f"{declared}, {field}: {remedy}")


_ARE_FAILURES_KEPT: ContextVar[bool] = ContextVar("are_failures_kept", default=False)


@contextmanager
def failures_kept() -> Iterator[None]:
    """Inside, what can fail by itself keeps the error of its declaration as its `problem`: one part
    stops no whole location.
    """
    token = _ARE_FAILURES_KEPT.set(True)
    try:
        yield
    finally:
        _ARE_FAILURES_KEPT.reset(token)


def are_failures_kept() -> bool:
    """Whether an error of a declaration is kept with what is declared, in place of being raised."""
    return _ARE_FAILURES_KEPT.get()


def keep_or_raise(declared: object, error: DeclarationError) -> None:
    """Keep the error with the frozen value of whose declaration it is, as its `problem`; raise it
    where failures are not kept.
    """
    if not are_failures_kept():
        raise error
    object.__setattr__(declared, "problem", str(error))


class NotFoundError(LakeChimeError, LookupError):
    """Nothing of that name is there."""


class StoreUnreachableError(LakeChimeError):
    """The DCE store cannot be opened; the URL is shown without its password."""


class StoreVersionError(LakeChimeError):
    """The DCE store was written by a newer version, or needs an upgrade."""


class ConsumerConflictError(LakeChimeError):
    """Another attempt, run or command moved this consumer first; nothing was changed."""


class ConsumerBlockedError(LakeChimeError):
    """An execution must not go on before a person has decided; the message holds the evidence and
    the choices.

    `ends_when` says when it goes on by itself; "" where only a person lets it.
    """

    def __init__(self, message: str, *, ends_when: str = "") -> None:
        super().__init__(message)
        self.ends_when = ends_when


class TableUnreadableError(LakeChimeError):
    """A lake table, or its log, cannot be read where it is said to be."""


class ConcurrentWriteError(LakeChimeError):
    """Another writer of a table was first; nothing of this write is in the table."""


class TableAbsentError(TableUnreadableError):
    """There is no table where it is said to be, or not yet."""


class MessagesUnreadableError(LakeChimeError):
    """A source of messages cannot be asked, or no longer holds what it said that it holds."""


class SourceUnreadableError(LakeChimeError):
    """A business database cannot be asked, or does not answer what is asked."""


class PlanUnreadableError(LakeChimeError):
    """Spark does not show what it was asked to do, so that lineage is not known."""


class SparkUnavailableError(LakeChimeError):
    """No Spark driver could be started or attached; says what is missing."""


EXTRA_OF = {
    "apprise": "alarms",
    "confluent_kafka": "kafka",
    "dagster_webserver": "demo",
    "delta": "spark",
    "deltalake": "delta",
    "duckdb": "demo",
    "email_validator": "personal",
    "fastapi": "api",
    "hive_metastore": "hive",
    "numpy": "lineage",
    "orjson": "delta",
    "phonenumbers": "personal",
    "prometheus_client": "api",
    "psycopg": "postgres",
    "py4j": "spark",
    "pyarrow": "delta",
    "pyiceberg": "iceberg",
    "pymysql": "mysql",
    "pyspark": "spark",
    "sqlglot": "lineage",
    "stdnum": "personal",
    "thrift": "hive",
    "uvicorn": "api",
}
"""By top-level module the smallest extra that brings it."""


class needs:  # noqa: N801 - reads as a word of the with statement
    """Reports a missing optional package in one sentence: `with needs("a Delta table's log"): from
    … import …`.

    Args:
        what: What cannot be done without the package.
        extra: The extra to install, where a smaller one with the package would not be enough.
        raised: The class of the error.
    """

    def __init__(
        self, what: str, extra: str = "", raised: type[LakeChimeError] = MissingExtraError
    ) -> None:
        self.what = what
        self.extra = extra
        self.raised = raised

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        package = (
            str(error.name).partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        )
        if package in EXTRA_OF:
            extra = self.extra or EXTRA_OF[package]
            raise self.raised(
                f"{self.what} needs {package}, which is not installed: pip install "
                f"'lakechime-dagster[{extra}]'"
            ) from error


def shown(value: object, limit: int = 80) -> str:
    """A value as an error message shows it: quoted, without control characters, cut at `limit`
    characters.
    """
    try:
        text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    except ValueError:  # a number of more than 4,300 digits
        text = f"a {type(value).__name__} too long to show"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def without_password(url: str) -> str:
    """A URL as logs and messages may show it: `***` from the first `:` to the last `@`, and no
    query key that names a secret.
    """
    text, mark, query = _PASSWORD.sub(r"\1:***@", url).partition("?")
    kept = [
        pair for pair in query.split("&") if not _SECRET.search(unquote(pair.partition("=")[0]))
    ]
    return f"{text}{mark}{'&'.join(kept)}" if any(kept) else text
