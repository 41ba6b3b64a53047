// palette.js: Ctrl or ⌘ with K opens a list of the screens, servers and tools, which the typed
// words filter. The arrow keys select, Enter opens, and Esc closes.
import { say } from "./form.js";

const maxShown = 50; // rows: a person types another word rather than reads more
const wait = 500; // milliseconds before tools are read that a server has not listed yet
let entries = [];
let dialog = null;
let selected = 0;

function build() {
  dialog = document.createElement("dialog");
  dialog.className = "palette";
  dialog.setAttribute("aria-label", "Go to");
  const input = document.createElement("input");
  input.type = "search";
  input.placeholder = "Screen, server or tool";
  const attributes = { role: "combobox", "aria-label": "Screen, server or tool", "aria-controls": "palette-list",
    "aria-expanded": "true", "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false" };
  for (const [name, value] of Object.entries(attributes)) {
    input.setAttribute(name, value);
  }
  const list = document.createElement("ul");
  list.id = "palette-list";
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Screens, servers and tools");
  const none = document.createElement("p");
  none.className = "muted";
  none.setAttribute("role", "status");
  input.addEventListener("input", () => { selected = 0; show(); });
  input.addEventListener("keydown", press);
  list.addEventListener("click", (event) => go(event.target.closest("[role=option]")));
  dialog.append(input, list, none);
  document.body.append(dialog);
}

// found returns the entries that contain all words: entries whose name begins with the first word
// come first.
function found(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const textOf = (e) => `${e.name} ${e.kind} ${e.server ?? ""}`.toLowerCase();
  const has = entries.filter((e) => words.every((w) => textOf(e).includes(w)));
  const begins = (e) => e.name.toLowerCase().startsWith(words[0] ?? "");
  return [...has.filter(begins), ...has.filter((e) => !begins(e))];
}

function show() {
  const [input, list, none] = dialog.children;
  const all = found(input.value);
  const rows = all.slice(0, maxShown).map((entry, i) => {
    const row = document.createElement("li");
    row.id = `palette-${i}`;
    row.dataset.url = entry.url;
    row.setAttribute("role", "option");
    row.setAttribute("aria-selected", String(i === selected));
    const name = document.createElement("span");
    name.className = "data";
    name.textContent = entry.name;
    const kind = document.createElement("span");
    kind.className = "muted small";
    kind.textContent = entry.server ? `${entry.kind} of ${entry.server}` : entry.kind;
    row.append(name, kind);
    return row;
  });
  list.replaceChildren(...rows);
  input.setAttribute("aria-activedescendant", rows[selected]?.id ?? "");
  rows[selected]?.scrollIntoView({ block: "nearest" });
  none.textContent = all.length === 0 ? "No match." : all.length > maxShown ? `${all.length - maxShown} more` : "";
}

function press(event) {
  const count = dialog.children[1].children.length;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    selected = Math.min(Math.max(selected + (event.key === "ArrowDown" ? 1 : -1), 0), Math.max(count - 1, 0));
    show();
  } else if (event.key === "Enter" && !event.isComposing) {
    go(dialog.children[1].children[selected]);
  } else {
    return;
  }
  event.preventDefault();
}

function go(row) {
  if (row) {
    dialog.close();
    location.assign(row.dataset.url);
  }
}

async function open() {
  if (dialog?.open) {
    dialog.close();
    return;
  }
  if (!dialog) {
    build();
  }
  dialog.children[0].value = "";
  entries = [...document.querySelectorAll("nav [data-key]")].map((link) => (
    { kind: "screen", name: link.firstChild.textContent, url: link.getAttribute("href") }));
  selected = 0;
  show();
  dialog.showModal();
  await load(entries);
}

// load adds the servers and tools to the screens. The server lists tools that it does not know yet
// later.
async function load(screens) {
  const response = await fetch("/palette", { headers: { "X-Console": "1" } });
  if (!response.ok) {
    throw new Error(`status ${response.status}`);
  }
  const answer = await response.json();
  entries = [...screens, ...answer.entries];
  show();
  if (answer.loading && dialog.open) {
    await new Promise((done) => { setTimeout(done, wait); });
    await load(screens);
  }
}

document.addEventListener("keydown", (event) => {
  const isKey = event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey;
  if (isKey && document.querySelector("dialog[open]:not(.palette)") === null) {
    event.preventDefault();
    open().catch((error) => say(`Servers and tools cannot be listed: ${error.message}`, "bad"));
  }
});
