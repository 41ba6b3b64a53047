// filter.js hides the rows of a list that do not contain the text of a field with data-filter, whose value
// is the id of the list. Enter sends the form, and the server filters.

function apply(field) {
  const list = document.getElementById(field.dataset.filter);
  if (!list) {
    return;
  }
  const words = field.value.toLowerCase();
  if (!words && !list.querySelector("[data-row][hidden], [data-none]:not([hidden])")) {
    return; // each fragment that is placed calls apply, and a list may have 1,000 rows
  }
  let shown = 0;
  for (const row of list.querySelectorAll("[data-row]")) {
    row.hidden = !row.textContent.toLowerCase().includes(words);
    shown += row.hidden ? 0 : 1;
  }
  const none = list.querySelector("[data-none]");
  if (none) {
    none.hidden = shown > 0 || list.querySelector("[data-row]") === null;
  }
}

const fields = () => document.querySelectorAll("[data-filter]:not([data-filter=''])");

document.addEventListener("input", (event) => {
  if (event.target.dataset?.filter) {
    apply(event.target);
  }
});
document.addEventListener("placed", () => fields().forEach(apply));
