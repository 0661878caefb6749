// Tabs. A tool starts when it is first shown.
import { $ } from "./dom.js";
import { startTheme } from "./theme.js";
import { statistics, switchTool } from "./request.js";
import { startCurves } from "./curves.js";
import { startImages } from "./images.js";
import { startTables } from "./tables.js";
import { startSpan } from "./span.js";

const tools = { curves: startCurves, images: startImages, tables: startTables, span: startSpan };
const names = Object.keys(tools);
const started = {};

function show(name) {
  for (const other of names) {
    const tab = $(`tab-${other}`);
    tab.setAttribute("aria-selected", String(other === name));
    tab.tabIndex = other === name ? 0 : -1;
    $(other).hidden = other !== name;
  }
  switchTool(name);
  started[name] ??= tools[name]();
  started[name].onShow?.();
  if (location.hash !== `#${name}`) history.replaceState(null, "", `#${name}`);
}

for (const [i, name] of names.entries()) {
  const tab = $(`tab-${name}`);
  tab.addEventListener("click", () => show(name));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const other = names[(i + step + names.length) % names.length];
    show(other);
    $(`tab-${other}`).focus();
  });
}

const nameInHash = () => names.find((name) => name === location.hash.slice(1));

startTheme();
show(nameInHash() ?? "curves");
window.addEventListener("hashchange", () => nameInHash() && show(nameInHash()));
window.fillinRequests = statistics; // for tests and benchmarks
