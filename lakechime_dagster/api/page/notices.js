"use strict";
// Planned changes on the page: drafting one, looking whom it concerns, telling them, and what came of it. Names and texts are only ever text.

const NOTICES = "/lineage/notices", OPEN = ["planned", "announced"], SHOWN_TEXTS = 1;
let me = "", looking = 0;

async function noticed(path, body) {
  const headers = { "X-Lakechime": "page", Accept: "application/json" };
  if (body === undefined) return answered(await fetch(NOTICES + path, { headers }));
  headers["Content-Type"] = "application/json";
  return answered(await fetch(NOTICES + path, { method: "POST", headers, body: JSON.stringify(body) }));
}

async function draft(event) {
  event.preventDefault();
  const field = (name) => at(`notice-${name}`).value;
  const body = { of: shown ? [ofNotice()] : [] };
  for (const name of ["kind", "what", "action", "on", "sender", "who"]) body[name] = field(name);
  me = body.who;
  try {
    const kept = await noticed("", body);
    at("drafted").textContent = `change ${kept.change}, version ${kept.version}, is a draft: ${kept.title}. Nobody was told`;
    at("notice-what").value = at("notice-action").value = "";
    await Promise.all([show(false), list(), tellPreview(kept.change)]);
  } catch (problem) {
    at("drafted").textContent = problem.message;
  }
}

async function list() {
  const body = at("planned").tBodies[0];
  try {
    const { changes, more } = await noticed(at("ended").checked ? "?ended=true" : "");
    body.replaceChildren();
    for (const one of changes) {
      const row = html("tr", "", body);
      for (const text of [one.change, one.state, one.title, one.who, when(one.announced_ts), one.told, one.seen]) html("td", String(text), row);
      buttonsOf(one, html("td", "", row));
    }
    at("listed").textContent = changes.length ? (more ? `and ${more} older ones` : "") : "no change is planned";
  } catch (problem) {
    at("listed").textContent = problem.message;
  }
}

function buttonsOf(one, parent) {
  if (OPEN.includes(one.state) || one.state === "withdrawn") button("whom it concerns", () => tellPreview(one.change), parent);
  button("what came of it", () => tellStory(one.change), parent);
}

// What is asked for last is shown, and what is shown gets the focus, so that it is read next.
async function tellAbout(question, tellIt) {
  const mine = ++looking, section = at("change");
  let found = null, problem = "";
  try {
    found = await question;
  } catch (failure) {
    problem = failure.message;
  }
  if (mine !== looking) return;
  section.replaceChildren();
  const heading = html("h2", found ? `Change ${found.change}, version ${found.version}, ${found.state}: ${found.title}` : problem, section);
  heading.tabIndex = -1;
  if (found) tellIt(found, section);
  heading.focus();
}

const tellPreview = (number) => tellAbout(noticed(`/${number}/preview?${new URLSearchParams({ who: me })}`), preview);
const tellStory = (number) => tellAbout(noticed(`/${number}`), story);

function preview(found, section) {
  const own = found.own || [], unowned = found.unowned || [];
  if (found.problem) html("p", `Nothing can be sent from here: ${found.problem}`, section).className = "problem";
  html("p", found.messages.length ? "Whom it concerns, why, and the text for each. Nobody is told by looking." : "It concerns nobody else.", section);
  if (unowned.length) html("p", `Nobody owns ${unowned.join(", ")}; ${found.sender ? `${found.sender} is told, who sends it` : "nobody is told of it, as nobody is named who sends it"}.`, section);
  if (own.length) html("p", `The sender's own, of which nobody is told: ${own.join(", ")}.`, section);
  const messages = html("ul", "", section);
  messages.className = "messages";
  found.messages.forEach((one, number) => {
    const item = html("li", "", messages), text = html("details", "", item);
    html("strong", one.owner || "nobody", item);
    html("span", [one.channel ? `through ${one.channel}` : "", one.reason, stateOf(one)].filter(Boolean).map((part) => ` · ${part}`).join(""), item);
    if (one.problem) html("p", one.problem, item).className = "problem";
    item.append(text);
    html("summary", one.title, text);
    html("pre", one.body, text);
    text.open = number < SHOWN_TEXTS;
  });
  sending(found, section);
  const further = html("p", "", section);
  button("what came of it", () => tellStory(found.change), further);
}

function stateOf(one) {
  if (one.state === null) return one.goes ? "" : "cannot be sent";
  if (one.state === "waiting") return one.goes ? "waits to be sent" : `is tried again from ${when(one.due_ts)} on`;
  return { sent: "was sent", claimed: "is being sent", unknown: "nobody knows whether it was sent", failed: "was given up" }[one.state] || one.state;
}

function sending(found, section) {
  const again = found.messages.filter((one) => one.goes_again).length, announces = found.state === "planned" && !found.messages.length && !found.problem;
  if (!found.recipients && !again && !announces) {
    html("p", found.messages.some((one) => one.problem) ? "Nobody can be told from here." : "There is nothing to send.", section);
    return;
  }
  const form = html("form", "", section);
  form.id = "send";
  const who = field(form, "who you are", "who", me, 128), check = again ? ticked(form, `again: ${several(again, "message")} that failed, or of which nobody knows`) : null;
  const send = html("button", "", form), told = statusLine(form), cannot = found.messages.filter((one) => one.problem && !one.goes).length;
  if (cannot) told.textContent = `${several(cannot, "message")} cannot be sent now, as is told above`;
  const name = () => {
    const number = found.recipients + (check && check.checked ? again : 0);
    send.textContent = announces ? "Announce it: nobody is told" : `Send to ${several(number, "recipient")}`;
    send.disabled = !announces && !number;
  };
  name();
  if (check) check.addEventListener("change", name);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    me = who.value;
    send.disabled = true;
    told.textContent = "sending …";
    try {
      const body = { version: found.version, mark: found.mark, who: me, again: Boolean(check && check.checked) };
      const done = await noticed(`/${found.change}/send`, body);
      await Promise.all([tellAbout(done, story), list(), shown && show(false)]);
    } catch (problem) {
      told.textContent = problem.message;
      button("look again", () => tellPreview(found.change), told);
    }
  });
}

function story(found, section) {
  if (found.tried) outcome(found, section);
  if (found.waiting) html("p", `${several(found.waiting, "message")} to whoever was told wait: look whom it concerns, and send them.`, section).className = "outcome";
  const facts = { what: found.what, "what to do": found.action, when: found.on || "", of: found.of.join(", "), "in the name of": found.sender, "drafted by": found.who };
  const list = html("dl", "", section);
  for (const [name, text] of Object.entries(facts)) {
    if (!text) continue;
    html("dt", name, list);
    html("dd", text, list);
  }
  const sent = found.messages.map((one) => [one.owner, one.channel, `${one.occasion}, version ${one.version}`, one.state, when(one.tried_ts), one.problem]);
  tabled("Told", ["owner", "through", "of what", "state", "tried", "problem"], sent, "nobody was told yet", section);
  const seen = found.acknowledged.map((one) => [one.owner, one.who, when(one.acked_ts), one.note]);
  tabled("Seen", ["owner", "seen by", "when", "note"], seen, "nobody has said yet to have seen it", section);
  if (found.unseen.length) html("p", `Not yet: ${found.unseen.join(", ")}.`, section);
  tabled("Done with it", ["when", "who", "did", "version", "why"], found.steps.map((one) => [when(one.ts), one.who, one.action, one.version, one.reason]), "", section);
  if (OPEN.includes(found.state) || found.state === "withdrawn") button("whom it concerns", () => tellPreview(found.change), html("p", "", section));
  if (OPEN.includes(found.state)) withdrawing(found, section);
}

function outcome(found, section) {
  const sent = found.tried.filter((one) => one.state === "sent").length, failed = found.tried.length - sent;
  const parts = [found.tried.length ? `${several(sent, "message")} sent` : "nothing was left to send"];
  if (failed) parts.push(`${failed} not taken: to be tried again when it is time`);
  for (const one of found.unreached) parts.push(`${one.owner} was not told, as there is no channel; it ${one.reason}`);
  const line = html("p", parts.join("; "), section);
  line.className = failed || found.unreached.length ? "outcome problem" : "outcome";
}

function withdrawing(found, section) {
  const part = html("details", "", section);
  html("summary", "Withdraw it", part);
  const form = html("form", "", part);
  form.id = "withdraw";
  const reason = field(form, "why", "reason", "", 1000), who = field(form, "who you are", "who", me, 128);
  html("button", "withdraw it", form);
  const told = statusLine(form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    me = who.value;
    try {
      const done = await noticed(`/${found.change}/withdraw`, { reason: reason.value, who: me });
      await Promise.all([tellAbout(done, story), list(), shown && show(false)]);
    } catch (problem) {
      told.textContent = problem.message;
    }
  });
}

document.addEventListener("DOMContentLoaded", () => {
  at("notice").addEventListener("submit", draft);
  at("changes").addEventListener("toggle", () => at("changes").open && list());
  at("ended").addEventListener("change", list);
});
