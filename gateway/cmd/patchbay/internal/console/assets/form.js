// form.js sends the forms with data-live, and places the fragments of the response. It also sends a form
// when a field with data-submit changes.
import { place } from "./place.js";

const toast = document.getElementById("toast");
const toastTime = 6000; // milliseconds that a message is shown

export function say(text, kind = "") {
  const p = document.createElement("p");
  p.className = kind;
  p.textContent = text;
  toast.append(p);
  setTimeout(() => p.remove(), toastTime);
}

async function send(form, button) {
  const body = new URLSearchParams(new FormData(form, button));
  const path = button?.getAttribute("formaction") ?? form.getAttribute("action");
  const response = await fetch(path, { method: "POST", body, headers: { "X-Console": "1" } });
  if (response.status === 401) {
    say("The session has ended. Open the link that the command prints.", "bad");
    return;
  }
  let answer;
  try {
    answer = await response.json();
  } catch {
    throw new Error(`status ${response.status}`);
  }
  if (answer.error) {
    say(answer.error, "bad");
    return;
  }
  for (const event of answer.events ?? []) {
    place(event, true);
  }
  if (answer.message) {
    say(answer.message);
  }
  if (answer.location && !answer.events && answer.location !== location.pathname + location.search) {
    location.assign(answer.location);
  }
}

async function submit(event) {
  const form = event.target;
  if (event.defaultPrevented || !form.matches("form[data-live]")) {
    return;
  }
  event.preventDefault();
  if (form.getAttribute("aria-busy") === "true") {
    return;
  }
  const button = event.submitter;
  const content = [...button?.childNodes ?? []];
  form.setAttribute("aria-busy", "true");
  if (button?.dataset.busy) {
    button.textContent = button.dataset.busy;
  }
  try {
    await send(form, button);
  } catch (error) {
    say(`Not sent: ${error.message}`, "bad");
  } finally {
    form.removeAttribute("aria-busy");
    if (button?.isConnected && button.dataset.busy && button.textContent === button.dataset.busy) {
      button.replaceChildren(...content);
    }
  }
}

document.addEventListener("submit", submit);
document.addEventListener("change", (event) => {
  if (event.target.matches?.("[data-submit]")) {
    event.target.form.requestSubmit();
  }
});
