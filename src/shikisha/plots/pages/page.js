"use strict";
// Sorting by a column, and saying below a drawing what a mark is. Without this script nothing is missing.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const key = (row, column) => row.cells[column].dataset.v ?? row.cells[column].textContent;
  Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
    if (head.dataset.skip !== undefined) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") === "descending";
      const compare = (one, other) => {
        const [a, b] = [key(one, column), key(other, column)];
        if (a === "" || b === "") return (a === "") - (b === "");
        const order = head.dataset.text !== undefined ? a.localeCompare(b) : a - b;
        return up ? order : -order;
      };
      for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      body.append(...Array.from(body.rows).sort(compare));
    });
  });
}
for (const event of ["focusin", "pointerover"]) {
  document.addEventListener(event, ({ target }) => {
    const mark = target.closest("[data-tip]");
    const said = mark?.closest("figure")?.querySelector(".said");
    if (said) said.textContent = mark.querySelector("title").textContent;
  });
}
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
