"use strict";
// The page of lineage: asks for what is around a table, places the tables by dagre, and draws them. Names are only ever text.

const ROW = 17, WIDTH = 230, MARGIN = 8, LETTERS = 60, MOST = 14, MOST_CHANGES = 3;
const DIRECT = ["identity", "transformation", "aggregation", "direct"], NOT_SURE = ["unsure", "declared", "reads"];
let shown = null, picked = null, bright = new Set();
const open = new Set();

async function asked(path, parameters) {
  return answered(await fetch(`${location.origin}${path}?${new URLSearchParams(parameters)}`, { headers: { Accept: "application/json" } }));
}

async function answered(answer) {
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error ? value.error.message : answer.statusText);
  return value;
}

function wanted() {
  return { table: at("name").value.trim(), up: at("up").value, down: at("down").value };
}

let asking = 0;
async function show(push) {
  const mine = ++asking;
  let answer = null, problem = null;
  try {
    answer = await asked("/lineage/around", wanted());
  } catch (failure) {
    problem = failure;
  }
  if (mine !== asking) return; // somebody has asked for another one meanwhile
  if (problem) {
    at("status").textContent = problem.message;
    return;
  }
  shown = answer;
  picked = shown.column === null ? null : key(shown.table, shown.column);
  at("name").value = shown.column === null ? shown.table : `${shown.table}.${shown.column}`;
  if (push) history.pushState(null, "", `?${new URLSearchParams(wanted())}`);
  document.title = `${shown.table} · lineage`;
  if (push) at("about").replaceChildren();
  if (picked) showColumn(shown.tables.find((one) => one.table === shown.table), shown.column);
  draw();
}

const key = (table, column) => JSON.stringify([table, column]);
const classOf = (kinds) => (kinds.some((one) => DIRECT.includes(one)) ? "direct" : kinds.some((one) => NOT_SURE.includes(one)) ? "unsure" : "indirect");

function links() {
  const kind = at("kind").value, listed = new Set();
  for (const { source, target } of shown.links) if (source[1] !== null || target[1] !== null) listed.add(key(source[0], target[0]));
  return shown.links.filter(({ source, target, kinds }) => {
    const isWhole = source[1] === null && target[1] === null;
    return (!kind || classOf(kinds) === kind) && !(isWhole && listed.has(key(source[0], target[0])));
  });
}

function rowsOf(table) {
  const used = new Set();
  for (const link of links()) for (const end of [link.source, link.target]) if (end[0] === table.table && end[1] !== null) used.add(end[1]);
  if (picked) { const [of, column] = JSON.parse(picked); if (of === table.table) used.add(column); }
  for (const { column } of table.personal) used.add(column);
  const columns = table.columns.filter((column) => used.has(column));
  return open.has(table.table) || columns.length <= MOST ? columns : mostOf(table, columns);
}

// Of more columns than are drawn, what is picked and what lights up with it are among those that are, all in their order.
function mostOf(table, columns) {
  const isLit = (column) => bright.has(key(table.table, column));
  const most = new Set([...columns.filter(isLit), ...columns.filter((column) => !isLit(column))].slice(0, MOST));
  return columns.filter((column) => most.has(column));
}

function lit() {
  const found = new Set();
  bright = new Set(picked ? [picked] : []);
  if (!picked) return found;
  for (const [from, to] of [["source", "target"], ["target", "source"]]) {
    let layer = [picked];
    const seen = new Set(layer);
    while (layer.length) {
      const next = [];
      for (const link of shown.links) {
        const near = key(...link[from]), far = key(...link[to]);
        if (!layer.includes(near)) continue;
        found.add(`${key(...link.source)}>${key(...link.target)}`);
        bright.add(far);
        if (!seen.has(far)) { seen.add(far); next.push(far); }
      }
      layer = next;
    }
  }
  return found;
}

function draw() {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir: "LR", nodesep: 24, ranksep: 90, marginx: 12, marginy: 12 });
  graph.setDefaultEdgeLabel(() => ({}));
  const rows = new Map(), marked = lit();
  for (const table of shown.tables) {
    rows.set(table.table, rowsOf(table));
    const lines = rows.get(table.table).length + marksOf(table).length + 2;
    graph.setNode(table.table, { width: WIDTH, height: ROW * lines + 10, table });
  }
  for (const link of links()) if (link.source[0] !== link.target[0]) graph.setEdge(link.source[0], link.target[0], {}, link.source[0] + ">" + link.target[0]);
  dagre.layout(graph);
  const svg = at("graph"), size = graph.graph();
  svg.replaceChildren();
  svg.setAttribute("width", Math.max(300, size.width || 0));
  svg.setAttribute("height", Math.max(80, size.height || 0));
  const place = (end, isSource) => {
    const box = graph.node(end[0]), row = rows.get(end[0]).indexOf(end[1]);
    const y = box.y - box.height / 2 + (row < 0 ? ROW * 0.8 : ROW * (row + 2));
    return [box.x + (isSource ? WIDTH / 2 : -WIDTH / 2), y];
  };
  for (const link of links()) {
    if (!graph.hasNode(link.source[0]) || !graph.hasNode(link.target[0])) continue;
    const [x1, y1] = place(link.source, true), [x2, y2] = place(link.target, false), bend = Math.max(40, (x2 - x1) / 2);
    const name = `${key(...link.source)}>${key(...link.target)}`;
    const edge = made("path", { class: `edge ${classOf(link.kinds)}${marked.has(name) ? " lit" : ""}`, d: `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}` });
    edge.append(made("title", {}, `${said(link.source)} → ${said(link.target)}: ${link.kinds.join(", ")}`));
    svg.append(edge);
  }
  for (const name of graph.nodes()) svg.append(boxOf(graph.node(name), rows.get(name)));
  for (const label of svg.querySelectorAll("text")) fit(label);
  summarize();
}

const said = ([table, column]) => (column === null ? table : `${table}.${column}`);
const cut = (text, most) => { const letters = [...text]; return letters.length > most ? letters.slice(0, most - 1).join("") + "…" : text; };

function fit(label) { // how wide letters are is known once they are drawn
  const text = label.firstChild;
  for (let most = [...text.data].length - 1; most > 1 && label.getComputedTextLength() > WIDTH - 2 * MARGIN; most--) text.data = cut(text.data, most);
}

function boxOf(node, columns) {
  const { table } = node, left = node.x - WIDTH / 2, top = node.y - node.height / 2;
  const group = made("g", { class: `box${table.table === shown.table ? " asked" : ""}`, "data-table": table.table });
  group.append(made("rect", { class: "frame", x: left, y: top, width: WIDTH, height: node.height, rx: 5 }));
  const part = (text, y, name, act, about) => {
    const label = made("text", { x: left + MARGIN, y, class: name, tabindex: 0, role: "button" }, cut(text, LETTERS));
    label.append(made("title", {}, about || text));
    label.addEventListener("click", act);
    label.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); } });
    group.append(label);
  };
  part(table.table, top + ROW, "title", () => { at("name").value = table.table; show(true); });
  columns.forEach((column, row) => {
    const mine = key(table.table, column), tags = table.personal.filter((one) => one.column === column).map(wordsOf);
    const name = `column${mine === picked ? " picked" : ""}${tags.length ? " personal" : ""}`, shape = tags.length ? `\u25c6 ${column}` : column;
    const about = tags.length ? `${column}: ${tags.join(", ")}` : column;
    part(shape, top + ROW * (row + 2) + 4, name, () => pick(table, column), about);
  });
  marksOf(table).forEach(({ text, name, reveal, about }, row) => {
    part(text, top + ROW * (columns.length + row + 2) + 4, `mark ${name}`, reveal, about);
  });
  const left_out = rowsLeft(table, columns), bottom = top + node.height - 6;
  if (left_out) part(`+${left_out} columns`, bottom, "more", () => { open.add(table.table); draw(); });
  else if (table.more) part(`+${table.more} tables`, bottom, "more", () => { const side = at(table.layer < 0 ? "up" : "down"); side.value = Number(side.value) + 1; show(true); });
  return group;
}

function pick(table, column) {
  const mine = key(table.table, column);
  picked = picked === mine ? null : mine;
  if (picked) showColumn(table, column);
  else at("about").replaceChildren();
  draw();
}

function readersOf(table) {
  const number = table.readers.length + table.more_readers, active = table.readers.filter((one) => one.active).length;
  return `${number} read${number === 1 ? "s" : ""} it, ${active} active`;
}

function marksOf(table) {
  const marks = [], further = table.planned.slice(MOST_CHANGES), { gap } = table;
  if (gap) marks.push({ name: `gap ${gap.kind === "written externally" ? "external" : ""}`, text: `? ${gap.kind}`, reveal: () => showGap(table), about: gap.reasons.join("; ") });
  if (table.readers.length) marks.push({ name: "readers", text: readersOf(table), reveal: () => about(`Who reads ${table.table}`, readerLines(table)) });
  for (const one of table.planned.slice(0, MOST_CHANGES)) marks.push({ name: "planned", text: `${one.sure ? "!" : "!?"} ${one.title}`, reveal: () => showChange(one), about: changeTitle(one) });
  if (further.length) marks.push({ name: "planned", text: `! +${further.length} change${further.length === 1 ? "" : "s"}`, reveal: () => showChanges(table) });
  return marks;
}

function about(title, lines) {
  const section = at("about");
  section.replaceChildren();
  html("h2", title, section);
  items(lines, section);
}

function items(lines, parent) {
  const list = html("ul", "", parent);
  for (const { text, link } of lines) {
    const item = html("li", text, list);
    if (!/^https?:\/\//i.test(link || "")) continue;
    const there = html("a", " open", item);
    there.href = link;
    there.rel = "noopener noreferrer";
  }
}

function folded(title, lines, parent) {
  const details = html("details", "", parent);
  html("summary", title, details);
  items(lines, details);
}

function showColumn(table, column) {
  const mine = key(table.table, column), rows = key(table.table, null), lines = [], given = (link) => `${said(link.source)} (${link.kinds.join(", ")})`;
  for (const link of shown.links) if (key(...link.target) === mine) lines.push({ text: `comes from ${given(link)}` });
  for (const link of shown.links) if (key(...link.target) === rows && link.source[1] !== null) lines.push({ text: `its rows are decided by ${given(link)}` });
  for (const link of shown.links) if (key(...link.source) === mine) lines.push({ text: `leads to ${said(link.target)} (${link.kinds.join(", ")})` });
  for (const one of table.readers) if (!one.columns.length || one.columns.includes(column)) lines.push(readerLine(one));
  lines.push(...moreReaders(table), ...gapLines(table));
  about(said([table.table, column]), lines);
}

function readerLine(one) {
  const text = [
    `${one.kind} ${one.name}${one.namespace ? ` (${one.namespace})` : ""}`, `read last ${one.last}`, one.active ? "active" : "",
    one.columns.length ? `reads ${one.columns.join(", ")}` : "which columns is unknown", one.owners.join(", "),
  ];
  return { link: one.link, text: text.filter(Boolean).join(" · ") };
}

const moreReaders = (table) => (table.more_readers ? [{ text: `and ${table.more_readers} more who read the table` }] : []);
const readerLines = (table) => [...table.readers.map(readerLine), ...moreReaders(table)];

function gapLines({ gap }) {
  if (!gap) return [];
  return [...gap.reasons.map((why) => ({ text: `not known: ${why}` })), ...(gap.more ? [{ text: `and ${gap.more} more that is not known` }] : [])];
}

const showGap = (table) => about(`${table.table} is ${table.gap.kind}`, gapLines(table));

function showChange(one) {
  const sure = one.sure ? "" : "whether it reaches this is not sure";
  about(`Change ${one.change}, ${one.state}`, [one.title, one.what, one.action, sure].filter(Boolean).map((text) => ({ text })));
}

const changeTitle = (one) => `change ${one.change}, ${one.state}: ${one.title}${one.sure ? "" : " (perhaps)"}`;
const changeWords = (one) => [one.what, one.action].filter(Boolean).join(" · ");

function showChanges(table) {
  about(`What is planned and reaches ${table.table}`, table.planned.map((one) => ({ text: `${changeTitle(one)} · ${changeWords(one)}` })));
}

const wordsOf = ({ category, how }) => (how === "personal" ? category : `${category}, ${how}`);

function rowsLeft(table, columns) {
  if (open.has(table.table)) return 0;
  open.add(table.table);
  const all = rowsOf(table).length;
  open.delete(table.table);
  return all - columns.length;
}

function summarize() {
  const parts = [`${shown.tables.length} tables`];
  if (shown.more) parts.push(`+${shown.more} more`);
  parts.push(...shown.unknown.map((why) => `not known: ${why}`));
  at("status").textContent = parts.join(" · ");
  const body = at("list").tBodies[0], edges = at("edges").tBodies[0];
  body.replaceChildren();
  for (const table of shown.tables) {
    const row = html("tr", "", body);
    html("td", String(table.layer), row);
    const name = html("td", "", row), link = html("a", table.table, name);
    link.href = `?${new URLSearchParams({ ...wanted(), table: table.table })}`;
    for (const tag of table.tags) html("span", tag, name).className = "tag";
    if (table.gap) folded(table.gap.kind, gapLines(table), name);
    html("td", table.owners.join(", "), row);
    html("td", table.last, row);
    html("td", String(table.columns.length), row);
    html("td", table.more ? `+${table.more}` : "", row);
    const readers = html("td", "", row), planned = html("td", "", row);
    if (table.readers.length) folded(readersOf(table), readerLines(table), readers);
    for (const one of table.planned) {
      const change = html("div", changeTitle(one), planned);
      html("span", ` ${changeWords(one)}`, change);
    }
    html("td", table.personal.map((one) => `${one.column === null ? "rows" : one.column} (${wordsOf(one)})`).join(", "), row);
  }
  edges.replaceChildren();
  for (const link of links()) {
    const row = html("tr", "", edges);
    html("td", said(link.source), row);
    html("td", said(link.target), row);
    html("td", link.kinds.join(", "), row);
  }
}

async function way(event) {
  event.preventDefault();
  try {
    const ends = { source: at("name").value.trim(), target: at("to").value.trim() };
    const found = await asked("/lineage/way", ends);
    at("about").textContent = found.edges === null ? "no way is known" : found.edges.map((edge) => `${said(edge.source)} → ${said(edge.target)} (${edge.kinds.join(", ")})`).join("; ");
  } catch (problem) {
    at("about").textContent = problem.message;
  }
}

let typing = 0;
async function suggest(like) {
  const mine = ++typing, found = await asked("/lineage/names", { like });
  if (mine !== typing) return;
  at("names").replaceChildren(...found.names.map((name) => { const option = document.createElement("option"); option.value = name; return option; }));
}

function read() {
  const given = new URLSearchParams(location.search);
  at("about").replaceChildren();
  for (const name of ["up", "down"]) at(name).value = given.get(name) || at(name).defaultValue;
  at("name").value = given.get("table") || "";
  if (at("name").value) show(false);
}

document.addEventListener("DOMContentLoaded", () => {
  at("asked").addEventListener("submit", (event) => { event.preventDefault(); show(true); });
  at("way").addEventListener("submit", way);
  for (const name of ["name", "to"]) at(name).addEventListener("input", () => suggest(at(name).value));
  at("kind").addEventListener("change", () => shown && draw());
  window.addEventListener("popstate", read);
  read();
});
