// lanes.js selects a range of time: drag over the lanes of Traffic. The filter then contains the
// range.

const svg = "http://www.w3.org/2000/svg";
const least = 5; // pixels that tell a selection from a click
let drag = null; // the beginning of the selection in progress

const chart = () => document.querySelector("#lanes svg");

// at returns the position of an event in the chart, from 0 to 1.
function at(event) {
  const box = chart().getBoundingClientRect();
  return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
}

function clear() {
  drag?.band.remove();
  drag = null;
}

document.addEventListener("pointerdown", (event) => {
  const on = event.target.closest?.("#lanes svg");
  if (!on || event.button !== 0) {
    return;
  }
  event.preventDefault();
  const { from, to } = on.closest("[data-from]").dataset;
  drag = { x: event.clientX, at: at(event), from: Number(from), to: Number(to), band: document.createElementNS(svg, "rect") };
  drag.band.setAttribute("class", "band");
});

document.addEventListener("pointermove", (event) => {
  if (!drag || !chart()) {
    return;
  }
  const { width, height } = chart().viewBox.baseVal;
  const [begin, end] = [drag.at, at(event)].sort((a, b) => a - b);
  drag.band.setAttribute("x", begin * width);
  drag.band.setAttribute("width", (end - begin) * width);
  drag.band.setAttribute("height", height);
  if (drag.band.parentNode !== chart()) { // also after an update
    chart().append(drag.band);
  }
});

document.addEventListener("pointerup", (event) => {
  const field = document.getElementById("q");
  if (!drag || !chart() || Math.abs(event.clientX - drag.x) < least) {
    clear();
    return;
  }
  const [begin, end] = [drag.at, at(event)].sort((a, b) => a - b);
  const time = (part) => new Date(drag.from + part * (drag.to - drag.from)).toISOString();
  const terms = field.value.replace(/(^|\s)(from|to):\S+/g, "").trim();
  field.value = `${terms} from:${time(begin)} to:${time(end)}`.trim();
  clear();
  field.form.requestSubmit();
});

document.addEventListener("pointercancel", clear);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    clear();
  }
});
