// keys.js: g and a letter opens a screen, / focuses the filter, j, k, Enter and Esc select, open and close,
// r, x and c repeat, compare and copy, . pauses live updates, ? shows the keys. Keys without Ctrl or ⌘ can
// be switched off.

const stored = "patchbay-keys";
let isWaiting = false; // for the letter after g
let dialog = null;

function isOff() {
  return localStorage.getItem(stored) === "off";
}

function isTyping(target) {
  return target.closest?.("input, textarea, select, [contenteditable]") !== null;
}

function move(by) {
  const rows = [...document.querySelectorAll("[data-row]")].filter((row) => row.offsetParent !== null);
  if (rows.length === 0) {
    return;
  }
  const at = rows.indexOf(document.activeElement?.closest?.("[data-row]"));
  const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + by, 0), rows.length - 1)];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

// act clicks the element for a key: of the focused row, or the first of the page.
function act(key) {
  const row = document.activeElement?.closest?.("[data-row]");
  const words = `[data-do="${key}"]`;
  const all = [...(row?.querySelectorAll(words) ?? []), ...document.querySelectorAll(`main ${words}`)];
  const target = all.find((e) => e.checkVisibility());
  target?.click();
  return target !== undefined;
}

function element(name, text, ...children) {
  const e = document.createElement(name);
  e.textContent = text;
  e.append(...children);
  return e;
}

function help() {
  if (dialog?.open) {
    dialog.close();
    return;
  }
  dialog?.remove();
  dialog = document.createElement("dialog");
  dialog.setAttribute("aria-labelledby", "keys-title");
  const title = element("h2", "Keys");
  title.id = "keys-title";
  const list = document.createElement("dl");
  const add = (keys, what) => list.append(element("dt", "", element("kbd", keys)), element("dd", what));
  for (const link of document.querySelectorAll("nav [data-key]")) {
    add(`g ${link.dataset.key}`, link.firstChild.textContent);
  }
  add("/", "Go to the filter");
  add("j k", "Select the next or previous row");
  add("Enter", "Open the row");
  add("Esc", "Close, or leave a field");
  add("Ctrl/⌘ Enter", "Send the form");
  add("Ctrl/⌘ K", "Go to a screen, server or tool");
  add("r x c", "Repeat, compare or copy, where the page offers it");
  add("Shift A", "Approve the selected request once");
  add("Shift D", "Deny the selected request");
  add(".", "Pause live updates");
  add("?", "Show the keys");
  const check = document.createElement("input");
  check.type = "checkbox";
  check.checked = !isOff();
  check.addEventListener("change", () => localStorage.setItem(stored, check.checked ? "on" : "off"));
  const label = element("label", "");
  label.append(check, " Keys without Ctrl or ⌘ are on");
  const shut = element("button", "Close");
  shut.addEventListener("click", () => dialog.close());
  const foot = element("div", "", label, shut);
  foot.className = "head";
  dialog.append(title, list, foot);
  document.body.append(dialog);
  dialog.showModal();
}

function escape(target) {
  if (isTyping(target)) {
    target.blur();
    return;
  }
  document.querySelector("[data-close]")?.click();
}

// decide approves or denies the request of the focused card.
function decide(event) {
  const card = event.target.closest("[data-card]");
  const button = card?.querySelector(event.key === "A" ? "[data-approve]" : "[data-deny]");
  button?.click();
  return Boolean(button);
}

function plain(event) {
  if (isWaiting) {
    isWaiting = false;
    const link = document.querySelector(`nav [data-key="${CSS.escape(event.key)}"]`);
    link?.click();
    return link !== null;
  }
  switch (event.key) {
    case "g":
      isWaiting = true;
      setTimeout(() => { isWaiting = false; }, 1500);
      return true;
    case "/": {
      const filter = document.querySelector("[data-filter]");
      filter?.focus();
      filter?.select?.();
      return filter !== null;
    }
    case "j":
    case "k":
      move(event.key === "j" ? 1 : -1);
      return true;
    case "Enter": {
      const link = event.target.matches("[data-row]") ? event.target.querySelector("[data-primary]") : null;
      link?.click();
      return link !== null;
    }
    case "r":
    case "x":
    case "c":
      return act(event.key);
    case "A":
    case "D":
      return event.shiftKey && decide(event); // and not with caps lock
    case ".":
      document.dispatchEvent(new CustomEvent("pause"));
      return true;
    case "?":
      help();
      return true;
  }
  return false;
}

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.isComposing) {
    return;
  }
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    const form = event.target.closest("form") ?? document.querySelector("form[data-run]");
    if (form) {
      event.preventDefault();
      form.requestSubmit(form.querySelector("[data-default]"));
    }
    return;
  }
  if (event.key === "Escape" && !dialog?.open) {
    escape(event.target);
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || dialog?.open || isOff()) {
    return;
  }
  if (plain(event)) {
    event.preventDefault();
  }
});

const button = document.querySelector("[data-keys-help]");
if (button) {
  button.hidden = false;
  button.addEventListener("click", help);
}
