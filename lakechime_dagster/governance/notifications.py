"""Change notifications: whom a change affects, the message for each owner, and sending them."""

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.governance.changes import (
    SETTING,
    AffectedTable,
    Change,
    ChangeKind,
    ChangeState,
    Digest,
    NoAddressError,
    Occasion,
    Reader,
    ReaderKind,
    address_of,
    automatic_change,
    channels_of,
    digests_of,
    text_of,
    title_of,
    withdrawal_text,
)
from lakechime_dagster.governance.notification_store import KeptChange, KeptMessage, Message, Notifications
from lakechime_dagster.lineage import answers
from lakechime_dagster.lineage.answers import ConsumerHit
from lakechime_dagster.lineage.check import Class, Finding, mark_of
from lakechime_dagster.lineage.columns import ColumnRef, ConsumerKind
from lakechime_dagster.lineage.graph import TableFacts
from lakechime_dagster.lineage.network import Certainty
from lakechime_dagster.lineage.service import AskedLineage
from lakechime_dagster.runtime.alarms import NotSentError, problems_of, tell
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.triggers.interventions import By

CHECK = "lineage check"  # who drafts the findings of a check of the code
KINDS = {ConsumerKind.DASHBOARD: ReaderKind.DASHBOARD, ConsumerKind.USER: ReaderKind.PERSON, ConsumerKind.JOB: ReaderKind.JOB}


def notifications(platform: Platform) -> Notifications:
    """The change notifications of this deployment."""
    return Notifications(platform.store.engine, platform.ledger.deployment)


def affected_tables(asked: AskedLineage, refs: Collection[ColumnRef]) -> tuple[AffectedTable, ...]:
    """What a change of these tables and columns affects, they themselves as layer 0."""
    found = asked.hits(refs)
    changed = {ref.table for ref in refs}
    several = [one for one in found.hits if one.table not in changed]
    facts = asked.facts([*changed, *(one.table for one in several)])
    readers = _readers(asked.consumers(refs, found))
    return (
        *(_changed(table, refs, facts[table], readers) for table in sorted(changed)),
        *(_downstream(one, facts[one.table], readers) for one in several),
    )


def default_sender(asked: AskedLineage, refs: Iterable[ColumnRef]) -> str:
    """The one owner of all these tables; empty where there are several, or none."""
    owners = {one.owners for one in asked.facts({ref.table for ref in refs}).values()}
    several = owners.pop() if len(owners) == 1 else ()
    return several[0] if len(several) == 1 else ""


@dataclass(frozen=True, kw_only=True)
class Recipient:
    """One owner with a message, the channels to send it through, none where no channel is configured, and why the owner gets it."""

    digest: Digest
    channels: tuple[str, ...]
    title: str
    body: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Who would be notified of a change; `unowned` and `own` tables are shown to its sender alone."""

    kept: KeptChange
    recipients: tuple[Recipient, ...]
    unowned: tuple[str, ...]
    own: tuple[str, ...]

    @property
    def messages(self) -> list[Message]:
        return [
            Message(occasion=Occasion.ANNOUNCED, owner=one.digest.owner, channel=channel, title=one.title, body=one.body)
            for one in self.recipients
            for channel in one.channels
        ]


def plan_of(asked: AskedLineage, kept: KeptChange, who: str) -> Plan:
    """Who would be notified of a change now. What nobody owns goes to the sender."""
    channels = channels_of(asked.platform.settings.notification_urls)
    found = digests_of(kept.change, affected_tables(asked, kept.change.refs), asked.platform.store.now())
    digests = [*found.digests, *([found.unowned] if found.unowned.owner and (found.unowned.tables or found.unowned.readers) else [])]
    title = title_of(kept.change, Occasion.ANNOUNCED)
    recipients = [Recipient(digest=one, channels=channels.of(one.owner), title=title, body=_body(kept, one, who)) for one in digests]
    unowned, own = (tuple(one.table for one in digest.tables) for digest in (found.unowned, found.own))
    return Plan(kept=kept, recipients=tuple(recipients), unowned=unowned, own=own)


def close(platform: Platform, change_id: int, state: ChangeState, by: By) -> tuple[KeptChange, int]:
    """End a change; how many messages wait that tell a withdrawal to everybody who got the announcement, or may have."""
    known, messages = notifications(platform).get(change_id), list[Message]()
    if state is ChangeState.WITHDRAWN:
        title, body = title_of(known.change, Occasion.WITHDRAWN), withdrawal_text(known.change, by.who)
        tried = [one.message for one in notifications(platform).messages(change_id) if one.attempts]
        messages = [Message(occasion=Occasion.WITHDRAWN, owner=one.owner, channel=one.channel, title=title, body=body) for one in tried]
    return notifications(platform).close(change_id, state, by, messages), len(messages)


def send(
    platform: Platform, environment: Mapping[str, str], kept: KeptChange, plan: Plan | None, by: By, *, again: bool = False
) -> list[KeptMessage]:
    """Announce what the plan of an open change says, and send what waits in its outbox; the messages that were tried.

    `again` also sends what a sender that died may have sent already.

    Raises:
        ChangeMovedError: the change was amended, or is done or withdrawn by now.
        LakeChimeError: no channel is configured; nothing was announced.
    """
    if not channels_of(platform.settings.notification_urls).by_owner:
        raise LakeChimeError(
            f"""no channel is configured: set {SETTING} such as '{{"team:ops": "$OPS_SLACK"}}', and OPS_SLACK to a URL of apprise"""
        )
    box, sender, tried = notifications(platform), uuid.uuid4().hex, set[int]()
    if plan is not None:
        box.announce(kept, plan.messages, by.who)
    while (one := box.claim(sender, kept.change_id, again=again)) is not None:
        box.complete(sender, one, _send(one.message, environment))
        tried.add(one.message_id)
    return [one for one in box.messages(kept.change_id) if one.message_id in tried]


def problems(messages: Iterable[Message], environment: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """By owner and channel why a message cannot be sent, as far as that is known without sending; nothing of a URL is in it."""
    found, urls = dict[tuple[str, str], str](), dict[tuple[str, str], str]()
    for one in messages:
        try:
            urls[one.owner, one.channel] = address_of(one.channel, one.owner, environment)
        except NoAddressError as error:
            found[one.owner, one.channel] = str(error)
    wrong = problems_of(set(urls.values()))
    return found | {to: f"{to[1]}: {wrong[url]}" for to, url in urls.items() if url in wrong}


def draft_findings(platform: Platform, findings: Iterable[Finding]) -> Iterator[tuple[str, KeptChange, bool]]:
    """A draft for each table with findings that are not accepted: the table, the draft, and whether it is new.

    The same findings are the same draft; other findings of the table are another one.
    """
    own = [one for one in findings if not one.because and one.kind is not Class.INFORMS]
    for table in dict.fromkeys(one.table for one in own if not one.accepted):
        mine = [one for one in own if one.table == table]
        yield table, *notifications(platform).draft_once(finding_source(table, mine), finding_change(mine), CHECK)


def finding_source(table: str, findings: Iterable[Finding]) -> str:
    """The source of a draft: the same for the same findings, whether they are accepted or not."""
    return f"check/{table}/{mark_of(sorted(one.key for one in findings))}"


def finding_change(findings: Iterable[Finding]) -> Change:
    """The change that findings of one table announce, but for those that are accepted."""
    open_ones = [one for one in findings if not one.accepted]
    what = "; ".join(f"{one.column or one.table} {one.what}" for one in open_ones)
    return automatic_change(ChangeKind.SCHEMA_CHANGE, what, (one.ref for one in open_ones))


def _body(kept: KeptChange, digest: Digest, who: str) -> str:
    acknowledge = f"Acknowledge it with: lakechime notification ack {kept.change_id} --owner '{digest.owner}'"
    return f"{text_of(kept.change, digest, who)}\n\n{acknowledge}"


def _send(message: Message, environment: Mapping[str, str]) -> str | None:
    """Send a message; the problem, or None."""
    try:
        tell(address_of(message.channel, message.owner, environment), message.title, message.body, one_alone=True)
    except NoAddressError as error:
        return str(error)
    except NotSentError as error:
        return f"{message.channel}: {error}"
    return None


def _changed(table: str, refs: Iterable[ColumnRef], facts: TableFacts, readers: Mapping[str, set[Reader]]) -> AffectedTable:
    columns = [ref.column for ref in refs if ref.table == table]
    named = None if None in columns else tuple(sorted(column for column in columns if column))
    return AffectedTable(table=table, layer=0, columns=named, owners=facts.owners, readers=tuple(sorted(readers.get(table, ()), key=str)))


def _downstream(one: answers.Hit, facts: TableFacts, readers: Mapping[str, set[Reader]]) -> AffectedTable:
    """A table further down; where only a possible read of the table is known, its columns are unknown."""
    is_sure = one.certainty < Certainty.UNSURE
    columns = tuple(sorted(column.name for column in one.columns)) if one.columns or is_sure else None
    read_by = tuple(sorted(readers.get(one.table, ()), key=str))
    return AffectedTable(table=one.table, layer=one.layer, columns=columns, owners=facts.owners, is_sure=is_sure, readers=read_by)


def _readers(consumers: Iterable[ConsumerHit]) -> dict[str, set[Reader]]:
    """By table its readers; a person without an owner gets the own message."""
    found: dict[str, set[Reader]] = {}
    for one in consumers:
        kind = KINDS[one.consumer.kind]
        for owner in one.owners or (one.consumer.name if kind is ReaderKind.PERSON else "",):
            reader = Reader(name=one.consumer.name, kind=kind, owner=owner, link=one.link, read_ms=one.last_ms)
            for table in {ref.table for ref in one.refs}:
                found.setdefault(table, set()).add(reader)
    return found
