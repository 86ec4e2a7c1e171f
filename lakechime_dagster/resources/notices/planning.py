"""Who would be told what of a change, and through which channels: one digest an owner."""

from collections.abc import Iterable
from dataclasses import dataclass

from lakechime_dagster.lineage.notices.channels import Channels, channels_of
from lakechime_dagster.lineage.notices.digest_text import text_of, title_of
from lakechime_dagster.lineage.notices.digests import Digest, Hit, digests_of
from lakechime_dagster.lineage.notices.occasions import ANNOUNCED
from lakechime_dagster.resources.lineage.asked import AskedLineage
from lakechime_dagster.resources.notices.hits import hits_of
from lakechime_dagster.store.notices.changes import KeptChange
from lakechime_dagster.store.notices.outbox import Message


@dataclass(frozen=True, kw_only=True)
class Told:
    """What one owner is to be told, and through which channels; without one nobody tells."""

    digest: Digest
    channels: tuple[str, ...]
    title: str
    body: str

    def messages(self, occasion: str) -> list[Message]:
        return [
            Message(occasion=occasion, owner=self.digest.owner, channel=channel, title=self.title, body=self.body)
            for channel in self.channels
        ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Who would be told what of a change; `unowned` and `own` are for the eyes of its sender."""

    kept: KeptChange
    occasion: str
    told: tuple[Told, ...]
    unowned: Digest
    own: Digest

    @property
    def unreached(self) -> list[Digest]:
        """Whom nobody can tell, as no channel is known."""
        return [one.digest for one in self.told if not one.channels]

    @property
    def messages(self) -> list[Message]:
        return [message for one in self.told for message in one.messages(self.occasion)]


def plan_of(kept: KeptChange, hits: Iterable[Hit], channels: Channels, who: str, now_ms: int, occasion: str = ANNOUNCED) -> Plan:
    """Who would be told what on this occasion. What nobody owns is told to the sender, if a channel of that one is known."""
    found = digests_of(kept.change, hits, now_ms)
    several = [*found.digests, *([found.unowned] if found.unowned.owner and not found.unowned.is_empty else [])]
    title = title_of(kept.change, occasion)
    told = [
        Told(digest=one, channels=channels.of(one.owner), title=title, body=text_of(kept.change, one, occasion, who)) for one in several
    ]
    return Plan(kept=kept, occasion=occasion, told=tuple(told), unowned=found.unowned, own=found.own)


def plan(asked: AskedLineage, kept: KeptChange, who: str, channels: Channels | None = None) -> Plan:
    """What sending a change would tell now, through the channels that settings say unless others are given."""
    known = channels_of(asked.platform.settings.notice_urls) if channels is None else channels
    return plan_of(kept, hits_of(asked, kept.change.refs), known, who, asked.platform.store.now())
