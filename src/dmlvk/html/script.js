// What the page can do without a script, it does; this adds filters, sorting, and details for a finger.
"use strict";
for (const input of document.querySelectorAll("input[data-filter]")) {
  const rows = [...document.querySelectorAll(`${input.dataset.filter} tbody tr`)];
  const count = input.closest("p").querySelector("output");
  input.closest("p").hidden = false;
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    count.textContent = input.value ? `${shown} of ${rows.length}` : "";
    for (const family of document.querySelectorAll("details.family")) {
      family.hidden = !family.querySelector("tbody tr:not([hidden])");
      if (input.value) family.open = true;
    }
  });
}
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const body = table.tBodies[0];
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const order = (a, b) => {
        const [x, y] = [key(a), key(b)];
        if (!x || !y) return !x - !y; // what is not known comes last, whichever way
        const difference = Number.isNaN(Number(x) - Number(y)) ? x.localeCompare(y) : x - y;
        return down ? -difference : difference;
      };
      body.append(...[...body.rows].sort(order));
    });
  });
}
const details = document.getElementById("details");
document.addEventListener("click", (event) => {
  const cell = event.target.closest(".heat td[title]");
  details.hidden = !cell;
  if (cell) details.textContent = cell.title;
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") details.hidden = true;
});
if (matchMedia("(max-width: 640px)").matches) {
  for (const family of document.querySelectorAll("details.family:not(.failed)")) family.open = false;
  addEventListener("beforeprint", () => {
    for (const family of document.querySelectorAll("details.family")) family.open = true;
  });
}
