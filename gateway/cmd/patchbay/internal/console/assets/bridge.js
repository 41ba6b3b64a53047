// bridge.js shows the page of an app in a frame of another origin, and passes the messages between the page
// and the console. Everything that the page sends is hostile.
import { say } from "./form.js";

const stage = document.getElementById("app-stage");
const { load, source, sandbox, allow, title } = stage.dataset;
const inline = stage.querySelector("[data-inline]");
const maxMessage = 3 << 20; // characters of a message; a request to the console has at most 4 MiB
const maxWaiting = 256; // messages that wait for the console
const frame = document.createElement("iframe");
const abort = new AbortController();
const waiting = [];
let loads = 0;
let isSending = false;
let isTold = false;

// stop removes the frame. The end of the stream makes the console tear the app down.
function stop(text) {
  if (abort.signal.aborted) {
    return;
  }
  abort.abort();
  frame.remove();
  if (text) {
    const p = document.createElement("p");
    p.className = "notice warn";
    p.textContent = text;
    stage.append(p);
  }
}

async function send() {
  if (isSending) {
    return;
  }
  isSending = true;
  try {
    while (waiting.length > 0 && !abort.signal.aborted) {
      let body = waiting.shift();
      while (waiting.length > 0 && body.length + waiting[0].length < maxMessage) {
        body += `\n${waiting.shift()}`;
      }
      const response = await fetch(`/apps/message?load=${load}`, { method: "POST", body,
        headers: { "X-Console": "1" }, signal: abort.signal });
      if (!response.ok) {
        throw new Error(`status ${response.status}`);
      }
    }
  } catch (error) {
    stop(`The console does not accept the messages of the app: ${error.message}`);
  }
  isSending = false;
}

function receive(event) {
  if (event.source !== frame.contentWindow || abort.signal.aborted) {
    return; // any window may post messages here
  }
  let text;
  try {
    text = JSON.stringify(event.data); // without line ends
  } catch {
    text = undefined;
  }
  if (typeof text !== "string" || text.length > maxMessage) {
    isTold ||= (say("A message of the app was dropped: it is not JSON, or too large.", "bad"), true);
  } else if (waiting.length === maxWaiting) {
    stop("The app was closed: it sends more messages than the console reads.");
  } else {
    waiting.push(text);
    send();
  }
}

function show(mode, width) {
  stage.dataset.mode = mode;
  stage.dataset.width = width;
  inline.hidden = mode === "inline";
}

function handle(line) {
  const { message, height, mode, width, end } = JSON.parse(line);
  if (message) {
    frame.contentWindow?.postMessage(message, "*"); // a sandboxed frame has an opaque origin
  } else if (height) {
    frame.height = height;
  } else if (mode) {
    show(mode, width);
  } else if (end) {
    stop(end);
  }
}

async function read() {
  const response = await fetch(`/apps/stream?load=${load}`, { headers: { "X-Console": "1" }, signal: abort.signal,
    cache: "no-store" });
  if (!response.ok) {
    stop("The app cannot be shown here: it is shown in another page, or has ended.");
    return;
  }
  frame.src = source; // the console serves the page to an open stream only, and once
  stage.append(frame);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) {
      stop("The app has ended.");
      return;
    }
    const lines = (text + value).split("\n");
    text = lines.pop();
    lines.forEach(handle);
  }
}

frame.title = title;
frame.height = 100;
frame.referrerPolicy = "no-referrer";
frame.allow = allow;
frame.setAttribute("sandbox", sandbox);
frame.addEventListener("load", () => {
  loads += 1;
  if (loads > 1) {
    stop("The app was closed: its frame left the page of the app.");
  }
});
inline.addEventListener("click", () => {
  const mode = document.getElementById("app-mode");
  if (mode) {
    mode.value = "inline";
    mode.form.requestSubmit();
  }
});
show(stage.dataset.mode, stage.dataset.width);
window.addEventListener("message", receive);
window.addEventListener("pagehide", () => stop(""));
if (load) {
  read().catch((error) => abort.signal.aborted || stop(`The console does not respond: ${error.message}`));
}
