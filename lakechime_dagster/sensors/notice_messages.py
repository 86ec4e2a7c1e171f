"""The sensor that goes on with notices that people sent: what was not taken is sent again, and who has not seen it is reminded."""

import json
import os
from collections.abc import Mapping

import dagster as dg

from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lineage.notices.changes import ChangeState
from lakechime_dagster.resources.platform import Platform, open_platform
from lakechime_dagster.sensors.looking import looking_sensor
from lakechime_dagster.store.notices.outbox import KeptMessage, MessageState

INTERVAL_SECONDS = 30
MAX_SENT = 5  # a tick, which Dagster ends after 60 s; a message that nobody takes costs 8
WHO = "dagster"


def messages_sensor(lake: Lake) -> dg.SensorDefinition:
    """The sensor of a lake, for a code location with channels; of which changes it has reminded stands in its cursor."""

    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        platform = open_platform()
        reminded, sentences = remind(platform, lake, json.loads(context.cursor or "{}"))
        sentences += sent(platform, os.environ)
        return dg.SensorResult(skip_reason="; ".join(sentences) or "nothing is due", cursor=json.dumps(reminded))

    about = "Sends again what was not taken of notices that people sent, and reminds whoever has not seen one before it comes."
    return looking_sensor(f"{lake.name}__notice_messages", INTERVAL_SECONDS, about, look)


def remind(platform: Platform, lake: Lake, before: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Put reminders that are due into the outbox; by change the last occasion, each looked at once, and what is to be said."""
    from lakechime_dagster.resources.lineage.asked import AskedLineage
    from lakechime_dagster.resources.notices.sending import notices, reminder_due, reminders

    asked, reminded = AskedLineage(platform, lake), dict[str, str]()
    sentences: list[str] = []
    for kept in notices(platform).changes(ChangeState.ANNOUNCED):
        occasion = reminder_due(kept, platform.store.now())
        if occasion is None:
            continue
        number, at = str(kept.change_id), f"{kept.version} {occasion}"
        if before.get(number) != at and (plan := reminders(asked, kept, WHO)) is not None:
            added = notices(platform).announce(kept, plan.messages, WHO)
            sentences.append(f"change {number}: {occasion}, {added} to tell")
        reminded[number] = at
    return reminded, sentences


def sent(platform: Platform, environment: Mapping[str, str]) -> list[str]:
    """Send what is due; what came of it, without what is in an address."""
    from lakechime_dagster.resources.notices.sending import check_sending, outbox, send_on

    there, missing = check_sending(platform.settings).split(environment)
    tried = send_on(platform, environment, there, MAX_SENT)
    found = [_sentence(one) for one in tried]
    waiting = {one.message.channel for one in outbox(platform).waiting() if one.state is MessageState.WAITING}
    if nowhere := sorted(waiting & set(missing)):
        found.append(f"messages wait, as this process's environment does not hold {', '.join(nowhere)}")
    return found


def _sentence(one: KeptMessage) -> str:
    what = f"change {one.change_id} to {one.message.owner}"
    return f"{what} is sent" if one.state is MessageState.SENT else f"{what} is {one.state}: {one.problem}"
