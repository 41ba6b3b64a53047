// The script of the host's page. It forwards messages between the frame and the bridge unchanged.
const frame = document.getElementById("view");
const post = message => frame.contentWindow.postMessage(message, "*"); // a sandboxed frame has an opaque origin
const events = new EventSource("/events");
let bridge;

// Load the view when there is a bridge for it. A bridge serves one load.
events.addEventListener("bridge", event => {
  bridge = event.data;
  frame.src = frame.dataset.src;
});
events.addEventListener("message", event => post(JSON.parse(event.data)));
events.addEventListener("error", () => {
  events.close(); // a new stream would have a new bridge
  frame.remove();
});

addEventListener("message", async event => {
  if (event.source !== frame.contentWindow) return; // any window may post messages here
  const response = await fetch("/messages/" + bridge, { method: "POST", body: JSON.stringify(event.data) });
  const answer = await response.text();
  if (response.ok && answer) post(JSON.parse(answer));
});
