// attend.js leads a person who sends a request to the result, or to a question of the server. The script moves the
// focus and scrolls only while the person works in the form of the request. The script also keeps a details element
// with data-keep open or closed from page to page.
const kept = (details) => `open:${details.id}`;

for (const details of document.querySelectorAll("details[data-keep]")) {
  details.open = sessionStorage.getItem(kept(details)) === "yes";
}
document.addEventListener("toggle", ({ target }) => {
  if (target.matches?.("details[data-keep]")) {
    sessionStorage.setItem(kept(target), target.open ? "yes" : "no");
  }
}, true);

const isSending = () => {
  const active = document.activeElement;
  return active === document.body || active?.closest("#editor") !== null;
};
const openQuestions = () => [...document.querySelectorAll("#questions [data-card]:not(.answered)")];
const resultOf = () => {
  const run = document.getElementById("run");
  return document.getElementById("result-json") || run?.querySelector(".problem") ? run?.querySelector("h3")?.textContent : "";
};
const seen = new Set(openQuestions().map((card) => card.id));
let result = resultOf();

function attend() {
  const card = openQuestions().find(({ id }) => !seen.has(id));
  if (card) {
    seen.add(card.id);
    if (isSending()) {
      card.focus({ preventScroll: true });
      card.scrollIntoView();
    }
  }
  const now = resultOf();
  if (now && now !== result && isSending()) {
    document.getElementById("result").scrollIntoView({ block: "nearest" });
  }
  result = now;
}

document.addEventListener("placed", attend);
