// This is the host's own script. It carries messages between the frame and the bridge, and looks into none of them.
const frame = document.getElementById("view");
const tell = message => frame.contentWindow.postMessage(message, "*"); // the frame's origin is nobody's: it has no name
const events = new EventSource("/events");
let bridge;

// The view is loaded once there is a bridge for it, which serves this one load.
events.addEventListener("bridge", event => {
  bridge = event.data;
  frame.src = frame.dataset.src;
});
events.addEventListener("message", event => tell(JSON.parse(event.data)));
events.addEventListener("error", () => {
  events.close(); // a new stream would be that of a new bridge
  frame.remove();
});

addEventListener("message", async event => {
  if (event.source !== frame.contentWindow) return; // anybody may post messages to this window
  const response = await fetch("/say/" + bridge, { method: "POST", body: JSON.stringify(event.data) });
  const answer = await response.text();
  if (response.ok && answer) tell(JSON.parse(answer));
});
