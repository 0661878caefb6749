// Tables: blanks filled, shaded by how surely; a filled cell tells where it was told from.
import { $, bar, download, make, onFile, say } from "./dom.js";
import { ask } from "./request.js";

let told = null;
let filled = new Map(); // "row,column" → the cell

const shade = (sure) => (sure === null ? "s0" : `s${Math.min(4, Math.floor(5 * sure))}`);
const isLong = (text) => text.length > 4 && Math.abs(Number(text)) < 1000;
const short = (text) => (isLong(text) ? String(Number(Number(text).toPrecision(3))) : text);
const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

function send(text, name) {
  say(`Learning ${name}: some seconds`);
  $("table-about").textContent = `Learning ${name} …`;
  ask("table", "/api/tables", text, show, {
    type: "text/csv",
    failed: (error) => {
      $("table-about").textContent = error.message;
    },
  });
}

function show(answer) {
  told = answer;
  filled = new Map(answer.filled.map((cell) => [`${cell.row},${cell.column}`, cell]));
  const names = answer.columns.map((name) => make("th", { scope: "col" }, name));
  const head = make("tr", {}, make("th", { scope: "col" }, ""), ...names);
  const rows = answer.cells.map((cells, i) =>
    make("tr", { "data-row": i }, make("th", { scope: "row" }, String(i + 1)),
      ...cells.map((text, j) => cellOf(i, j, text))));
  $("table-sheet").replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
  const blanks = answer.filled.length;
  const size = `${answer.cells.length} rows, ${answer.columns.length} columns`;
  const line = `${size}, ${blanks} blank${blanks === 1 ? "" : "s"} filled in ${answer.seconds} s`;
  const options = answer.notes.some((note) => note.includes("--")) ? ["Options are those of fillin fill"] : [];
  $("table-about").textContent = [line, ...answer.notes, ...options].join(". ");
  $("table-shades").hidden = !blanks;
  $("table-get").disabled = !blanks;
  $("table-why").replaceChildren(blanks
    ? make("p", { class: "about" }, "Choose a shaded cell to see which rows and columns it was told from.")
    : make("p", { class: "about" }, "Nothing is missing in this table."));
  say(line);
}

function cellOf(i, j, text) {
  const cell = filled.get(`${i},${j}`);
  if (!cell) return make("td", {}, text);
  const band = cell.low === null ? "" : `, 95 % between ${cell.low} and ${cell.high}`;
  const sure = cell.confidence === null ? "" : `, confidence ${percent(cell.confidence)}`;
  const label = `${told.columns[j]} of row ${i + 1}, filled: ${cell.value}${band}${sure}`;
  return make("td", { class: shade(cell.confidence) },
    make("button", { type: "button", "aria-label": label, title: label, onclick: () => look(cell) },
      short(cell.value)));
}

function look(cell) {
  ask("cell", "/api/tables/cell", { id: told.id, row: cell.row, column: cell.column }, (why) => explain(cell, why));
}

function explain(cell, why) {
  const table = $("table-sheet").querySelector("table");
  for (const node of table.querySelectorAll(".chosen, .seen, .used")) node.classList.remove("chosen", "seen", "used");
  const rowOf = (i) => table.querySelector(`tr[data-row="${i}"]`);
  rowOf(cell.row).children[cell.column + 1].classList.add("chosen");
  const rows = why.rows.slice(0, 8), most = rows.length ? rows[0][1] : 1;
  for (const [row] of rows) rowOf(row).classList.add("seen");
  const columns = why.columns.map((change, j) => [j, change]).filter(([, change]) => change !== null);
  columns.sort((a, b) => b[1] - a[1]);
  for (const [j, change] of columns) {
    if (change > 0.05) rowOf(cell.row).children[j + 1].classList.add("used");
  }
  const band = cell.low === null ? "" : `95 % between ${cell.low} and ${cell.high}. `;
  const sure = cell.confidence === null ? "" : `Confidence ${percent(cell.confidence)}.`;
  const largest = Math.max(...columns.map(([, change]) => change), 0.05);
  const value = (row) => told.cells[row][cell.column];
  $("table-why").replaceChildren(make("div", { class: "why" },
    make("h2", {}, `${told.columns[cell.column]}: ${cell.value}`),
    make("p", { class: "about" }, `Row ${cell.row + 1}. ${band}${sure}`),
    make("h3", {}, "Rows it attended to"),
    rows.length ? make("div", { class: "bars" }, ...rows.flatMap(([row, weight]) => [
      make("span", {}, `${row + 1}: ${value(row)}`), bar(weight / most), make("span", {}, percent(weight)),
    ])) : undefined,
    make("p", { class: "about" },
      `All others together: ${percent(why.others + why.rows.slice(8).reduce((a, [, w]) => a + w, 0))}`),
    make("h3", {}, "Columns: change of the answer when hidden"),
    make("div", { class: "bars" }, ...columns.slice(0, 10).flatMap(([j, change]) => [
      make("span", {}, told.columns[j]), bar(change / largest), make("span", {}, change.toFixed(2)),
    ])),
    make("p", { class: "about" }, why.what)));
  const first = rows.length ? `row ${rows[0][0] + 1} counts most` : why.what;
  say(`${told.columns[cell.column]} of row ${cell.row + 1}: ${first}`);
}

function quoted(text) {
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function csv() {
  const rows = told.cells.map((cells, i) => cells.map((text, j) => filled.get(`${i},${j}`)?.value ?? text));
  return [told.columns, ...rows].map((row) => row.map(quoted).join(",")).join("\n") + "\n";
}

export function startTables() {
  for (const [i, box] of [...$("table-shades").querySelectorAll("i")].entries()) box.classList.add(`s${i}`);
  const irises = (text) => send(text, "the irises");
  const example = () => ask("example", "/api/tables/example", undefined, irises, { text: true });
  $("table-example").addEventListener("click", example);
  $("table-get").addEventListener("click", () => download("filled.csv", csv(), "text/csv"));
  onFile($("tables"), $("table-file"), (file) => {
    if (file.size > 8e6) say("The file has more than 8 MB", true);
    else send(file, file.name);
  });
  example();
  return {};
}
