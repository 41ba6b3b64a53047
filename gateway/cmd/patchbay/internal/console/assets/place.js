// place.js puts fragments into the page. It changes only the nodes that differ, so focus,
// selection, scroll positions and open details stay as they are.
import { parse } from "./trust.js";

const isField = (node) => node.matches?.("input, textarea, select");

function isEdited(field) {
  if (field.type === "hidden" || field.type === "submit" || field.type === "button") {
    return false;
  }
  if (field.type === "checkbox" || field.type === "radio") {
    return field.checked !== field.defaultChecked;
  }
  if (field.nodeName === "SELECT") {
    return [...field.options].some((o) => o.selected !== o.defaultSelected) &&
      [...field.options].some((o) => o.defaultSelected);
  }
  return field.value !== field.defaultValue;
}

// hasEdits reports whether a person has edited a field of an element, or is about to.
function hasEdits(element) {
  const fields = [element, ...element.querySelectorAll("input, textarea, select")].filter(isField);
  return fields.some((f) => isEdited(f) || f === document.activeElement);
}

// Attributes that belong to the person and not to the server.
const own = new Set(["open", "aria-selected", "aria-expanded", "aria-busy"]);

function copyAttributes(from, to) {
  for (const { name, value } of [...from.attributes]) {
    if (to.getAttribute(name) !== value && !own.has(name)) {
      to.setAttribute(name, value);
    }
  }
  for (const { name } of [...to.attributes]) {
    if (!from.hasAttribute(name) && !own.has(name)) {
      to.removeAttribute(name);
    }
  }
}

const keyOf = (node) => node.id || node.dataset?.key || "";

function isSame(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);
}

// morph changes an element into another one with the same name. force also replaces what a person
// typed.
function morph(old, fresh, force) {
  copyAttributes(fresh, old);
  const typed = force && isField(old) ? fresh.value : null;
  if (old.dataset.since) {
    return; // live.js writes its text
  }
  let at = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    let match = at;
    if (match && !isSame(match, child) && keyOf(child)) {
      while (match && !isSame(match, child)) {
        match = match.nextSibling;
      }
    }
    if (!match || !isSame(match, child)) {
      old.insertBefore(child, at);
      continue;
    }
    while (at !== match) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
    at = match.nextSibling;
    if (match.nodeType === Node.ELEMENT_NODE) {
      morph(match, child, force);
    } else if (match.nodeValue !== child.nodeValue) {
      match.nodeValue = child.nodeValue;
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
  if (typed !== null) {
    old.value = typed;
  }
}

// Fragments that arrived while a person edited the element.
const waiting = new Map();

function offer(element, html) {
  waiting.set(element.id, html);
  if (element.classList.contains("outdated")) {
    return;
  }
  element.classList.add("outdated");
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Newer data: show it";
  button.addEventListener("click", () => {
    button.remove();
    const fresh = parse(waiting.get(element.id));
    waiting.delete(element.id);
    element.replaceWith(fresh);
    fresh.dispatchEvent(new CustomEvent("placed", { bubbles: true }));
  });
  element.before(button);
}

// remove removes an element. A focus in it moves to the next row.
function remove(element) {
  const hasFocus = element?.contains(document.activeElement);
  const row = element?.nextElementSibling ?? element?.previousElementSibling;
  element?.remove();
  if (hasFocus) {
    (row?.matches("[data-row]") ? row : document.getElementById("main")).focus();
  }
}

// place applies an event of the stream or of the response to a form. force replaces edited fields.
export function place(event, force = false) {
  const old = document.getElementById(event.id);
  if (event.place === "remove") {
    remove(old);
    return;
  }
  if (event.place === "keep") {
    const ids = new Set(event.ids);
    [...(old?.children ?? [])].filter((e) => e.id && !ids.has(e.id)).forEach((e) => e.remove());
    return;
  }
  const fresh = parse(event.html);
  if (Number(fresh.dataset.rev) < Number(old?.dataset.rev)) {
    return; // the response to a form arrived after a newer event of the stream
  }
  if (!old) {
    const list = document.getElementById(event.in);
    if (event.place === "prepend") {
      list?.prepend(fresh);
    } else {
      list?.append(fresh);
    }
  } else if (!force && hasEdits(old)) {
    offer(old, event.html);
    return;
  } else if (old.nodeName === fresh.nodeName) {
    morph(old, fresh, force);
  } else {
    old.replaceWith(fresh);
  }
  document.dispatchEvent(new CustomEvent("placed"));
}
