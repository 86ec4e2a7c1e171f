"""Telling one recipient something through apprise: as plain text, and with nothing of its URL in any log."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from lakechime_dagster.errors import LakeChimeError, needs

if TYPE_CHECKING:
    import apprise

TALKATIVE = ("apprise", "urllib3", "requests")  # whose debug logs hold headers, answers, and paths that are secrets
_muting = Lock()


class NotSentError(LakeChimeError):
    """Something did not reach its recipient, as far as we know."""


def tell(url: str, title: str, body: str, *, one_alone: bool = False) -> None:
    """Tell the recipient of this URL; `one_alone` refuses a URL of several, of whom some may be reached and others not.

    Raises:
        NotSentError: it was not taken; the message shows no more of the URL than its scheme.
    """
    with _muted():
        if not _opened(url, one_alone=one_alone).notify(title=title, body=body, body_format="text"):
            raise NotSentError(f"{_shown(url)} did not take it; check the URL, and that it is reached from here")


def problems_of(urls: Iterable[str]) -> dict[str, str]:
    """By URL why one recipient alone could not be told by it, as far as that is known without telling; those that are well are left out."""
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
        raise NotSentError(f"{_shown(url)} is no URL that apprise takes; see https://appriseit.com/services/")
    if one_alone and _recipients(several) != 1:
        raise NotSentError(f"{_shown(url)} is for several recipients; give each a variable of its own")
    return several


def _shown(url: str) -> str:
    return f"{url.partition('://')[0]}://…" if "://" in url else "what it holds"


def _recipients(several: "object") -> int:
    return sum(len(one) + len(getattr(one, "cc", ())) + len(getattr(one, "bcc", ())) for one in several)  # type: ignore[attr-defined]


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
