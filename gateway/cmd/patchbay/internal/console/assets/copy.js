// copy.js: a button with data-copy copies the text of the element whose id is its value.
import { say } from "./form.js";

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  const source = button && document.getElementById(button.dataset.copy);
  if (!source) {
    return;
  }
  try {
    await navigator.clipboard.writeText(source.textContent);
    say("Copied.");
  } catch {
    getSelection().selectAllChildren(source);
    say("The browser does not allow copying here: the text is selected.", "bad");
  }
});
