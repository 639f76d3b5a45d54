"use strict";
const body = document.querySelector("tbody");
const heads = [...document.querySelectorAll("th")];
const key = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.key === undefined ? cell.textContent : Number(cell.dataset.key);
};
heads.forEach((head, column) => {
  const button = head.querySelector("button");
  if (!button) return;
  button.addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const order = (a, b) => {
      const [x, y] = [key(a, column), key(b, column)];
      return typeof x === "number" ? x - y : x.localeCompare(y);
    };
    const rows = [...body.rows].sort((a, b) => (up ? order(a, b) : order(b, a)));
    body.append(...rows);
  });
});
