"use strict";
// What the page is made of: elements, fields and tables. Whatever names and texts are, they are only ever text.

const SVG = "http://www.w3.org/2000/svg";
const at = (id) => document.getElementById(id);
const when = (milliseconds) => (milliseconds === null ? "" : `${new Date(milliseconds).toISOString().slice(0, 19).replace("T", " ")} UTC`);
const several = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

function made(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function html(name, text, parent) {
  const element = document.createElement(name);
  element.textContent = text;
  parent.append(element);
  return element;
}

function button(text, act, parent) {
  const element = html("button", text, parent);
  element.type = "button";
  element.addEventListener("click", act);
  return element;
}

function field(form, text, name, value, limit) {
  const input = html("input", "", html("label", `${text} `, form));
  Object.assign(input, { name, value, maxLength: limit, required: true });
  return input;
}

function ticked(form, text) {
  const label = html("label", "", form), input = html("input", "", label);
  input.type = "checkbox";
  label.append(` ${text}`);
  return input;
}

function statusLine(form) {
  const line = html("p", "", form);
  line.setAttribute("role", "status");
  line.className = "problem";
  return line;
}

function tabled(title, columns, rows, empty, section) {
  html("h3", title, section);
  if (!rows.length) {
    html("p", empty, section);
    return;
  }
  const table = html("table", "", section), head = table.createTHead().insertRow(), body = table.createTBody();
  for (const column of columns) html("th", column, head);
  for (const cells of rows) {
    const row = html("tr", "", body);
    for (const text of cells) html("td", String(text), row);
  }
}
