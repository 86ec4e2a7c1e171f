"""Alarms: which checks fail, since when, and sending them through apprise."""

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING

from lakechime_dagster.errors import LakeChimeError, needs

if TYPE_CHECKING:
    import apprise


# whose debug logs hold headers, answers, and paths that are secrets
TALKATIVE = ("apprise", "urllib3", "requests")
_muting = Lock()


class NotSentError(LakeChimeError):
    """Something did not reach its recipient, as far as we know."""


def send_to(url: str, title: str, body: str, *, one_alone: bool = False) -> None:
    """Send a message to the recipient of this URL; `one_alone` refuses a URL of several, of whom
    some may be reached and others not.

    Raises:
        NotSentError: it was not taken; the message shows no more of the URL than its scheme.
    """
    with _muted():
        if not _opened(url, one_alone=one_alone).notify(title=title, body=body, body_format="text"):
            raise NotSentError(
                f"{_shown(url)} did not take it; check the URL, and that it is reached from here"
            )


def problems_of(urls: Iterable[str]) -> dict[str, str]:
    """By URL why it cannot send to one recipient alone, as far as that is known without sending;
    without those that can.
    """
    found: dict[str, str] = {}
    with _muted():
        for url in urls:
            try:
                _opened(url, one_alone=True)
            except NotSentError as error:
                found[url] = str(error)
    return found


def _opened(url: str, *, one_alone: bool) -> "apprise.Apprise":
    with needs("a message to people", raised=NotSentError):
        import apprise
    several = apprise.Apprise()
    if not several.add(url):
        raise NotSentError(
            f"{_shown(url)} is no URL that apprise takes; see https://appriseit.com/services/"
        )
    if one_alone and _recipients(several) != 1:
        raise NotSentError(
            f"{_shown(url)} is for several recipients; give each a variable of its own"
        )
    return several


def _shown(url: str) -> str:
    return f"{url.partition('://')[0]}://…" if "://" in url else "what it holds"


def _recipients(several: "object") -> int:
    return sum(
        len(one) + len(getattr(one, "cc", ())) + len(getattr(one, "bcc", ()))
        for one in several  # pyright: ignore[reportGeneralTypeIssues]
    )


@contextmanager
def _muted() -> Iterator[None]:
    """Let nothing of what sends be logged meanwhile, whatever level the process logs at."""
    loggers = [logging.getLogger(name) for name in TALKATIVE]
    with _muting:
        levels = [logger.level for logger in loggers]
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


SEVERITIES = ("WARN", "ERROR")
_NUMBERED = re.compile(r"\S*\d\S*")


class AlarmNotSentError(LakeChimeError):
    """An alarm reached nobody; it is sent again."""


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """A check that fails, until it recovers.

    Attributes:
        severity: ERROR or WARN, the worst since it failed first.
        text: The description of the newest result of the check.
        since_ms: When it failed first, in milliseconds since the epoch.
        faults: All faults since then, without numbers, of which people were notified.
    """

    table: str
    check: str
    severity: str
    text: str
    since_ms: int
    faults: Sequence[str] = ()

    @property
    def name(self) -> str:
        return f"{self.table} {self.check}"

    def now(self, severity: str, text: str) -> "Alarm":
        """The alarm after its check failed again."""
        faults = sorted({*self.faults, *faults_in(text)})
        return replace(
            self,
            severity=max(severity, self.severity, key=SEVERITIES.index),
            text=text,
            faults=faults,
        )

    def has_grown(self, before: "Alarm") -> bool:
        """Whether it is worse than people were notified: graver, or with another fault."""
        return self.severity != before.severity or len(self.faults) > len(before.faults)


def faults_in(text: str) -> set[str]:
    """The faults that a check speaks of, each without what counts, measures or numbers it: those
    change while the fault is the same.
    """
    return {_NUMBERED.sub("#", fault) for fault in text.split("; ")}


def alike(alarms: Iterable[Alarm]) -> Iterator[Sequence[Alarm]]:
    """Those of one table with the same text, as of all its checks when its execution is blocked:
    they are sent as one message.
    """
    found: dict[tuple[str, str, str], list[Alarm]] = {}
    for one in alarms:
        found.setdefault((one.table, one.severity, one.text), []).append(one)
    yield from found.values()


def failing(several: Sequence[Alarm]) -> str:
    """The title of alarms that are `alike`."""
    return f"{several[0].severity}: {several[0].table} fails {_checks(several)}"


def grown(several: Sequence[Alarm]) -> str:
    """The title of alarms that are worse than people were notified."""
    return f"{failing(several)}, and it is worse than before"


def recovered(several: Sequence[Alarm]) -> str:
    """The title of alarms that are over."""
    return f"Recovered: {several[0].table} passes {_checks(several)}"


def _checks(several: Sequence[Alarm]) -> str:
    return ", ".join(one.check for one in several)


def send(urls: Sequence[str], title: str, body: str) -> list[str]:
    """Send to all of these; returns those that were not reached, without the secrets of their URLs.

    Raises:
        AlarmNotSentError: Nobody was reached.
    """
    failed = []
    for number, url in enumerate(urls, start=1):
        try:
            send_to(url, title, body)
        except NotSentError as error:
            failed.append(f"number {number}: {error}")
    if len(failed) == len(urls):
        raise AlarmNotSentError("; ".join(failed))
    return failed
