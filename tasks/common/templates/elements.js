"use strict";
// What the scripts of all pages build them with. Everything is read from the page itself; text becomes text nodes only.

const read = id => {
  const found = document.getElementById(id);
  return found ? JSON.parse(found.textContent) : null;
};

const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
};

const select = (label, options, chosen, change) => {
  const box = make("select", {"aria-label": label, onchange: () => change(box.value)});
  for (const [value, text] of options) box.append(make("option", {value}, text));
  box.value = chosen;
  return make("label", {}, label + " ", box);
};
