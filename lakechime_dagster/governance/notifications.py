"""Change notifications: whom a change affects, the message for each owner, and sending them."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.governance.changes import (
    SETTING,
    AffectedReader,
    AffectedTable,
    ChangeState,
    Digest,
    NoAddressError,
    address_of,
    channels_of,
    digests_of,
    text_of,
    title_of,
)
from lakechime_dagster.governance.store import KeptChange, KeptMessage, Message, Notifications
from lakechime_dagster.lineage.answers import ReachedTable, nodes_of
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.network import Certainty, Network, reach
from lakechime_dagster.lineage.service import AskedLineage
from lakechime_dagster.runtime.alarms import NotSentError, problems_of, send_to
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.triggers.registry import By


def notifications(platform: Platform) -> Notifications:
    """The change notifications of this deployment."""
    return Notifications(platform.store.engine, platform.ledger.deployment)


def affected(
    asked: AskedLineage, refs: Collection[ColumnRef]
) -> tuple[list[AffectedTable], list[AffectedReader]]:
    """The tables that a change of these tables and columns affects, they themselves as layer 0, and
    their readers.
    """
    found = asked.reached(refs)
    columns = {
        table: [ref.column for ref in refs if ref.table == table]
        for table in sorted({ref.table for ref in refs})
    }
    several = [one for one in found.tables if one.table not in columns]
    facts = asked.facts([*columns, *(one.table for one in several)])
    tables = [
        AffectedTable(
            table=table,
            layer=0,
            columns=None if None in named else tuple(sorted(map(str, named))),
            owners=facts[table].owners,
        )
        for table, named in columns.items()
    ]
    tables += [_downstream(one, facts[one.table].owners) for one in several]
    readers = [
        AffectedReader(
            consumer=one.consumer,
            refs=one.refs,
            last_ms=one.last_ms,
            owners=one.owners,
            link=one.link,
        )
        for one in asked.consumers(refs, found)
    ]
    return tables, readers


@dataclass(frozen=True, kw_only=True)
class PlannedChange:
    """A drafted or announced change that affects a table, or may where it is not `is_sure`."""

    kept: KeptChange
    is_sure: bool


def planned_changes(asked: AskedLineage, tables: Collection[str]) -> dict[str, list[PlannedChange]]:
    """By table the newest drafted and announced changes that affect it, the newest first."""
    newest = notifications(asked.platform).changes(ChangeState.DRAFT, ChangeState.ANNOUNCED)
    network = asked.part([ref for kept in newest for ref in kept.change.refs])
    found: dict[str, list[PlannedChange]] = {}
    for kept in newest:
        sure, unsure = (
            _reached_tables(network, kept.change.refs, one)
            for one in (Certainty.INDIRECT, Certainty.UNSURE)
        )
        for table in sorted((sure | unsure).intersection(tables)):
            one = PlannedChange(kept=kept, is_sure=table in sure)
            found.setdefault(table, []).append(one)
    return found


def _reached_tables(
    network: Network, refs: Collection[ColumnRef], certainty: Certainty
) -> set[str]:
    """The tables of columns, and those that these lead to at least so surely."""
    nodes = reach(network, nodes_of(network, [*refs]), certainty).nodes
    reached = set(network.datasets[nodes].tolist())
    return {ref.table for ref in refs} | {network.labels[one] for one in reached}


def default_sender(asked: AskedLineage, refs: Iterable[ColumnRef]) -> str:
    """The one owner of all these tables; empty where there are several, or none."""
    owners = {one.owners for one in asked.facts({ref.table for ref in refs}).values()}
    several = owners.pop() if len(owners) == 1 else ()
    return several[0] if len(several) == 1 else ""


@dataclass(frozen=True, kw_only=True)
class Recipient:
    """One owner with a message, the channels to send it through, none where no channel is
    configured, and why the owner gets it.
    """

    digest: Digest
    channels: tuple[str, ...]
    title: str
    body: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Who would be notified of a change; the `unowned` tables are shown to its sender alone."""

    kept: KeptChange
    recipients: tuple[Recipient, ...]
    unowned: tuple[str, ...]

    @property
    def messages(self) -> list[Message]:
        return [
            Message(owner=one.digest.owner, channel=channel, title=one.title, body=one.body)
            for one in self.recipients
            for channel in one.channels
        ]

    @property
    def unreached(self) -> list[Recipient]:
        """The owners without a channel."""
        return [one for one in self.recipients if not one.channels]


def plan_of(asked: AskedLineage, kept: KeptChange, who: str) -> Plan:
    """Who would be notified of a change now."""
    channels = channels_of(asked.platform.settings.notification_urls)
    digests, unowned = digests_of(
        kept.change, *affected(asked, kept.change.refs), asked.platform.store.now()
    )
    title = title_of(kept.change)
    recipients = [
        Recipient(
            digest=one, channels=channels.of(one.owner), title=title, body=_body(kept, one, who)
        )
        for one in digests
    ]
    return Plan(kept=kept, recipients=tuple(recipients), unowned=unowned)


def send(
    platform: Platform, environment: Mapping[str, str], plan: Plan, by: By, *, again: bool = False
) -> list[KeptMessage]:
    """Announce what the plan of an open change says, and send what waits in its outbox; the
    messages that were tried.

    `again` also sends what a sender that died may have sent already.

    Raises:
        ChangeMovedError: the change is closed by now.
        LakeChimeError: no channel is configured; nothing was announced.
    """
    if not channels_of(platform.settings.notification_urls).by_owner:
        raise LakeChimeError(
            f"no channel is configured: set {SETTING} such as "
            """'{"team:ops": "$OPS_SLACK"}', and OPS_SLACK to a URL of apprise"""
        )
    box, tried, change_id = notifications(platform), set[int](), plan.kept.change_id
    box.announce(plan.kept, plan.messages, by.who)
    for one in box.messages(change_id):
        if box.claim(one, again=again):
            box.complete(one, _send(one, environment))
            tried.add(one.message_id)
    return [one for one in box.messages(change_id) if one.message_id in tried]


def problems(
    messages: Iterable[Message], environment: Mapping[str, str]
) -> dict[tuple[str, str], str]:
    """By owner and channel why a message cannot be sent, as far as that is known without sending;
    nothing of a URL is in it.
    """
    found, urls = dict[tuple[str, str], str](), dict[tuple[str, str], str]()
    for one in messages:
        try:
            urls[one.to] = address_of(one.channel, one.owner, environment)
        except NoAddressError as error:
            found[one.to] = str(error)
    wrong = problems_of(set(urls.values()))
    return found | {to: f"{to[1]}: {wrong[url]}" for to, url in urls.items() if url in wrong}


def _body(kept: KeptChange, digest: Digest, who: str) -> str:
    acknowledge = (
        f"Acknowledge it with: lakechime notification ack {kept.change_id} --owner '{digest.owner}'"
    )
    return f"{text_of(kept.change, digest, who)}\n\n{acknowledge}"


def _send(message: Message, environment: Mapping[str, str]) -> str | None:
    """Send a message; the problem, or None."""
    try:
        send_to(
            address_of(message.channel, message.owner, environment),
            message.title,
            message.body,
            one_alone=True,
        )
    except NoAddressError as error:
        return str(error)
    except NotSentError as error:
        return f"{message.channel}: {error}"
    return None


def _downstream(one: ReachedTable, owners: tuple[str, ...]) -> AffectedTable:
    """A table further down; where only a possible read of the table is known, its columns are
    unknown.
    """
    is_sure = one.certainty < Certainty.UNSURE
    columns = (
        tuple(sorted(column.name for column in one.columns)) if one.columns or is_sure else None
    )
    return AffectedTable(
        table=one.table, layer=one.layer, columns=columns, owners=owners, is_sure=is_sure
    )
