"use strict";
// What the page is made of: elements, fields and tables. Whatever names and texts are, they are only ever text.

const SVG = "http://www.w3.org/2000/svg";
const at = (id) => document.getElementById(id);

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
