"""Telling one recipient something through apprise: as plain text, and with nothing of its URL in any log."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from lakechime_dagster.errors import LakeChimeError

TALKATIVE = ("apprise", "urllib3", "requests")  # whose debug logs hold headers, answers, and paths that are secrets
_muting = Lock()


class NotSentError(LakeChimeError):
    """Something did not reach its recipient, as far as we know."""


def tell(url: str, title: str, body: str, *, one_alone: bool = False) -> None:
    """Tell the recipient of this URL; `one_alone` refuses a URL of several, of whom some may be reached and others not.

    Raises:
        NotSentError: it was not taken; the message shows no more of the URL than its scheme.
    """
    try:
        import apprise
    except ImportError as error:
        raise NotSentError("messages are sent by apprise, which is not installed: pip install 'lakechime-dagster[alarms]'") from error
    scheme = f"{url.partition('://')[0]}://…" if "://" in url else "what it holds"
    with _muted():
        several = apprise.Apprise()
        if not several.add(url):
            raise NotSentError(f"{scheme} is no URL that apprise takes; see https://appriseit.com/services/")
        if one_alone and _recipients(several) != 1:
            raise NotSentError(f"{scheme} is for several recipients; give each a variable of its own")
        if not several.notify(title=title, body=body, body_format=apprise.NotifyFormat.TEXT):
            raise NotSentError(f"{scheme} did not take it; check the URL, and that it is reached from here")


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
