// live.js reads the stream of the page and places its fragments. A hidden page closes its stream,
// because browsers allow six connections to a host.
import { place } from "./place.js";

const connection = document.getElementById("connection");
const banner = document.getElementById("banner");
const maxWait = 15000; // milliseconds between two attempts
let abort = null; // of the open stream
let timer = 0;
let wait = 500;
let isPaused = false;

function show(state, text) {
  connection.hidden = false;
  connection.className = `connection ${state}`;
  connection.textContent = text;
}

function warn(text, state = "") {
  banner.hidden = !text;
  banner.className = `banner ${state}`;
  banner.querySelector("span").textContent = text;
}

function handle(block) {
  let name = "message";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) {
      name = line.slice(7);
    } else if (line.startsWith("data: ")) {
      data += line.slice(6);
    }
  }
  switch (name) {
    case "message":
      if (data) {
        place(JSON.parse(data));
      }
      break;
    case "pass":
      warn("");
      break;
    case "problem":
      warn(`The data is out of date: ${JSON.parse(data)}`, "lost");
      break;
    case "reload":
      location.reload();
      break;
    case "end":
      end("The session has ended. Open the link that the command prints.");
      break;
  }
}

async function read(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) {
      return;
    }
    text += value;
    for (let at = text.indexOf("\n\n"); at >= 0; at = text.indexOf("\n\n")) {
      handle(text.slice(0, at));
      text = text.slice(at + 2);
    }
  }
}

// end stops without another attempt.
function end(text) {
  close();
  isPaused = true;
  show("lost", "Not connected");
  warn(text, "lost");
}

async function open() {
  if (abort || isPaused || document.hidden) {
    return;
  }
  clearTimeout(timer);
  abort = new AbortController();
  const { signal } = abort;
  const query = new URLSearchParams({ page: document.body.dataset.page, v: document.body.dataset.version });
  try {
    const response = await fetch(`/stream?${query}`, { signal, cache: "no-store" });
    if (response.status === 401 || response.status === 403) {
      end("The session has ended. Open the link that the command prints.");
      return;
    }
    if (response.status === 503) {
      end("Live updates are off: too many pages of the console are open. Close some, then refresh.");
      return;
    }
    if (!response.ok) {
      throw new Error(`status ${response.status}`);
    }
    show("live", "Live");
    warn("");
    wait = 500;
    await read(response);
  } catch (error) {
    if (signal.aborted) {
      return;
    }
    if (!(error instanceof TypeError)) { // a TypeError is a failed connection
      console.warn(error);
    }
  }
  if (signal.aborted || isPaused) {
    return;
  }
  abort = null;
  show("lost", "Disconnected");
  warn("The console does not respond. The page shows its last state and connects again by itself.", "lost");
  timer = setTimeout(open, wait);
  wait = Math.min(wait * 2, maxWait);
}

function close() {
  clearTimeout(timer);
  abort?.abort();
  abort = null;
}

function pause() {
  isPaused = !isPaused;
  if (isPaused) {
    close();
    show("paused", "Paused");
  } else {
    open();
  }
}

function ago(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  const units = [[86400, "d"], [3600, "h"], [60, "min"]];
  for (const [size, unit] of units) {
    if (s >= size) {
      return `${Math.floor(s / size)} ${unit}`;
    }
  }
  return `${s} s`;
}

// The elements with data-since show for how long something lasts.
function tick() {
  for (const element of document.querySelectorAll("[data-since]")) {
    const text = ago(Date.now() - Date.parse(element.dataset.since));
    if (element.textContent !== text) {
      element.textContent = text;
    }
    element.title ||= new Date(element.dataset.since).toLocaleString();
  }
}

// The title of the page counts the items that wait for the person, and a new item is announced.
const title = document.title.replace(/^\(\d+\) /, "");
let waiting = null;

function count() {
  const badges = [...document.querySelectorAll("[data-count]")];
  const sum = badges.reduce((n, badge) => n + Number(badge.dataset.count), 0);
  if (waiting !== null && sum > waiting) {
    const badge = badges.find((b) => b.dataset.news);
    document.getElementById("news").textContent = badge?.dataset.news ?? "";
  }
  waiting = sum;
  document.title = sum ? `(${sum}) ${title}` : title;
}

document.addEventListener("placed", count);
document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
document.addEventListener("placed", tick);
document.addEventListener("pause", pause);
window.addEventListener("pagehide", close);
window.addEventListener("pageshow", open);
for (const link of document.querySelectorAll("[data-refresh]")) {
  link.hidden = true; // the stream does it
}
setInterval(tick, 1000);
tick();
count();
open();
