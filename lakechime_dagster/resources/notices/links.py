"""How an owner says to have seen a change: by a link that is signed for the owner and ends, or by a command where none can be made."""

from lakechime_dagster.lineage.notices.acknowledging import Acknowledgement, signed
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.settings import Settings
from lakechime_dagster.store.notices.outbox import KeptMessage

LINK_MS = 60 * 86_400_000  # so long a link to acknowledge by is good
ACKNOWLEDGE = "/notice/acknowledge?token="


def acknowledge_by(platform: Platform, one: KeptMessage) -> str:
    """How the owner says that it was seen: by a link where one can be made, else by the command."""
    link = link_of(platform.settings, platform.ledger.deployment, one, platform.store.now())
    if link:
        return f"Say that you have seen this: {link}"
    return f"Say that you have seen this: lakechime notice ack {one.change_id} --owner '{one.message.owner}'"


def link_of(settings: Settings, deployment: str, one: KeptMessage, now_ms: int) -> str:
    """The link by which an owner acknowledges; empty where the API has no address for people, or there is no key to sign it with."""
    if not settings.notice_page or not settings.notice_key:
        return ""
    what = Acknowledgement(
        deployment=deployment, change_id=one.change_id, version=one.version, owner=one.message.owner, until_ms=now_ms + LINK_MS
    )
    return settings.notice_page.rstrip("/") + ACKNOWLEDGE + signed(what, settings.notice_key)
