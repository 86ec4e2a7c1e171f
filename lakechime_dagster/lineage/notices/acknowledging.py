"""The signed text in a link by which an owner acknowledges a change; it ends by itself, and says nothing that its reader may not know."""

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import dataclass

from lakechime_dagster.errors import InvalidValueError, LakeChimeError

VERSION = 1
MIN_KEY = 32  # characters of a key that nobody guesses
MAX_TOKEN = 2000


class LinkError(LakeChimeError):
    """A link to acknowledge by is not ours, was changed, or its time is over."""


@dataclass(frozen=True, kw_only=True)
class Acknowledgement:
    """What is acknowledged by a link: a version of a change of a deployment, by an owner, until a time in milliseconds since the epoch."""

    deployment: str
    change_id: int
    version: int
    owner: str
    until_ms: int


def checked_key(key: str) -> str:
    """The key itself, if nobody guesses it; it is never shown."""
    if len(key) < MIN_KEY:
        remedy = f'has less than {MIN_KEY} characters; make one by python -c "import secrets; print(secrets.token_urlsafe(32))"'
        raise InvalidValueError("LAKECHIME_NOTICE_KEY", "…", remedy)
    return key


def signed(what: Acknowledgement, key: str) -> str:
    """The text of letters, digits, `-`, `_` and a dot that stands for this in a link."""
    document = [VERSION, what.deployment, what.change_id, what.version, what.owner, what.until_ms]
    payload = json.dumps(document, separators=(",", ":")).encode()
    return f"{_text(payload)}.{_text(_signature(payload, key))}"


def verified(token: str, key: str, now_ms: int) -> Acknowledgement:
    """What a link's text says, if it was signed by this key and its time is not over.

    Raises:
        LinkError: otherwise; what is wrong with a text that we did not sign is not told.
    """
    payload, signature = (_bytes(part) for part in _parts(token))
    if not hmac.compare_digest(signature, _signature(payload, checked_key(key))):
        raise LinkError("this link is not one that was sent, or a part of it is missing; copy it whole from the message")
    _, deployment, change_id, version, owner, until_ms = json.loads(payload)
    if until_ms <= now_ms:
        raise LinkError(f"the time of this link is over; acknowledge by `lakechime notice ack {change_id} --owner …`, or ask for a new one")
    return Acknowledgement(deployment=deployment, change_id=change_id, version=version, owner=owner, until_ms=until_ms)


def _signature(payload: bytes, key: str) -> bytes:
    return hmac.digest(checked_key(key).encode(), b"lakechime/acknowledge/" + payload, hashlib.sha256)


def _parts(token: str) -> tuple[str, str]:
    payload, dot, signature = token[:MAX_TOKEN].partition(".")
    return (payload, signature) if dot else ("", "")


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    """What was written as text; nothing where it was not, so that no signature fits."""
    try:
        data = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except (UnicodeEncodeError, binascii.Error):
        return b""
    return data if _text(data) == text else b""
