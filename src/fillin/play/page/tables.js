// Tables: filled cells are shaded by confidence; selecting one explains its prediction.
import { $, announce, bar, download, make, onFile } from "./dom.js";
import { send } from "./request.js";

const MAX_ROWS_SHOWN = 8, MAX_COLUMNS_SHOWN = 10; // of an explanation
const RELEVANT_CHANGE = 0.05; // of the prediction; columns with a larger one are marked
let table = null;
let filled = new Map(); // "row,column" → filled cell

const shade = (confidence) => (confidence === null ? "s0" : `s${Math.min(4, Math.floor(5 * confidence))}`);
const isLong = (text) => text.length > 4 && Math.abs(Number(text)) < 1000;
const abbreviate = (text) => (isLong(text) ? String(Number(Number(text).toPrecision(3))) : text);
const percent = (fraction) => `${(100 * fraction).toFixed(fraction < 0.1 ? 1 : 0)} %`;
const describeInterval = ({ low, high }) => (low === null ? [] : [`95 % interval ${low} to ${high}`]);
const describeConfidence = ({ confidence }) => (confidence === null ? [] : [`confidence ${percent(confidence)}`]);
const describeCell = (cell) => [...describeInterval(cell), ...describeConfidence(cell)].join(", ");

function fill(content, name) {
  announce(`Training on ${name}: some seconds`);
  $("table-about").textContent = `Training on ${name} …`;
  send("table", "/api/tables", content, show, {
    type: "text/csv",
    onError: (error) => {
      $("table-about").textContent = error.message;
    },
  });
}

function show(response) {
  table = response;
  filled = new Map(table.filled.map((cell) => [`${cell.row},${cell.column}`, cell]));
  const names = table.columns.map((name) => make("th", { scope: "col" }, name));
  const header = make("tr", {}, make("th", { scope: "col" }, ""), ...names);
  const rows = table.cells.map((cells, i) =>
    make("tr", { "data-row": i }, make("th", { scope: "row" }, String(i + 1)),
      ...cells.map((text, j) => makeCell(i, j, text))));
  $("table-sheet").replaceChildren(make("table", {}, make("thead", {}, header), make("tbody", {}, ...rows)));
  const missing = table.filled.length;
  const size = `${table.cells.length} rows, ${table.columns.length} columns`;
  const summary = `${size}, ${missing} missing value${missing === 1 ? "" : "s"} filled in ${table.seconds} s`;
  const options = table.notes.some((note) => note.includes("--")) ? ["Options are those of fillin fill"] : [];
  $("table-about").textContent = [summary, ...table.notes, ...options].join(". ");
  $("table-shades").hidden = !missing;
  $("table-get").disabled = !missing;
  const hint = missing ? "Select a shaded cell to see the rows and columns behind its prediction."
    : "This table has no missing values.";
  $("table-explanation").replaceChildren(make("p", { class: "about" }, hint));
  announce(summary);
}

function makeCell(i, j, text) {
  const cell = filled.get(`${i},${j}`);
  if (!cell) return make("td", {}, text);
  const label = [`${table.columns[j]} of row ${i + 1}, filled: ${cell.value}`, describeCell(cell)].filter(Boolean).join(", ");
  return make("td", { class: shade(cell.confidence) },
    make("button", { type: "button", "aria-label": label, title: label, onclick: () => explain(cell) },
      abbreviate(cell.value)));
}

function explain(cell) {
  send("cell", "/api/tables/cell", { id: table.id, row: cell.row, column: cell.column }, (explanation) => {
    markCells(cell, explanation);
    showExplanation(cell, explanation);
  });
}

const changesOf = ({ columns }) =>
  columns.map((change, j) => [j, change]).filter(([, change]) => change !== null).sort((a, b) => b[1] - a[1]);

/** Mark the selected cell, the rows it attends to and the relevant columns. */
function markCells(cell, explanation) {
  const element = $("table-sheet").querySelector("table");
  for (const node of element.querySelectorAll(".selected, .attended, .relevant")) {
    node.classList.remove("selected", "attended", "relevant");
  }
  const rowElement = (i) => element.querySelector(`tr[data-row="${i}"]`);
  const cells = rowElement(cell.row).children;
  cells[cell.column + 1].classList.add("selected");
  for (const [row] of explanation.rows.slice(0, MAX_ROWS_SHOWN)) rowElement(row).classList.add("attended");
  for (const [j, change] of changesOf(explanation)) {
    if (change > RELEVANT_CHANGE) cells[j + 1].classList.add("relevant");
  }
}

function showExplanation(cell, explanation) {
  const rows = explanation.rows.slice(0, MAX_ROWS_SHOWN), changes = changesOf(explanation);
  const otherRows = explanation.rows.slice(MAX_ROWS_SHOWN).reduce((sum, [, weight]) => sum + weight, explanation.other_rows);
  const largest = Math.max(...changes.map(([, change]) => change), RELEVANT_CHANGE);
  const bars = (entries) => make("div", { class: "bars" }, ...entries.flatMap(([label, fraction, value]) =>
    [make("span", {}, label), bar(fraction), make("span", {}, value)]));
  $("table-explanation").replaceChildren(make("div", { class: "explanation" },
    make("h2", {}, `${table.columns[cell.column]}: ${cell.value}`),
    make("p", { class: "about" }, [`Row ${cell.row + 1}`, describeCell(cell)].filter(Boolean).join(", ")),
    make("h3", {}, "Rows it attends to"),
    rows.length ? bars(rows.map(([row, weight]) =>
      [`${row + 1}: ${table.cells[row][cell.column]}`, weight / rows[0][1], percent(weight)])) : undefined,
    make("p", { class: "about" }, `All other rows: ${percent(otherRows)}`),
    make("h3", {}, "Columns: change of the prediction when hidden"),
    bars(changes.slice(0, MAX_COLUMNS_SHOWN).map(([j, change]) =>
      [table.columns[j], change / largest, change.toFixed(2)])),
    make("p", { class: "about" }, explanation.description)));
  const first = rows.length ? `row ${rows[0][0] + 1} has the largest weight` : explanation.description;
  announce(`${table.columns[cell.column]} of row ${cell.row + 1}: ${first}`);
}

const quote = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

function toCsv() {
  const rows = table.cells.map((cells, i) => cells.map((text, j) => filled.get(`${i},${j}`)?.value ?? text));
  return [table.columns, ...rows].map((row) => row.map(quote).join(",")).join("\n") + "\n";
}

export function startTables() {
  for (const [i, box] of [...$("table-shades").querySelectorAll("i")].entries()) box.classList.add(`s${i}`);
  const fillExample = (text) => fill(text, "the iris table");
  const example = () => send("example", "/api/tables/example", undefined, fillExample, { text: true });
  $("table-example").addEventListener("click", example);
  $("table-get").addEventListener("click", () => download("filled.csv", toCsv(), "text/csv"));
  onFile($("tables"), $("table-file"), (file) => {
    if (file.size > 8e6) announce("The file is larger than 8 MB", true);
    else fill(file, file.name);
  });
  example();
  return {};
}
