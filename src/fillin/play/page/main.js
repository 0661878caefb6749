// The tabs. A tool begins when it is first shown.
import { $ } from "./dom.js";
import { startTheme } from "./theme.js";
import { timings, turnTo } from "./request.js";
import { startCurves } from "./curves.js";
import { startImages } from "./images.js";
import { startTables } from "./tables.js";
import { startSpan } from "./span.js";

const tools = { curves: startCurves, images: startImages, tables: startTables, span: startSpan };
const names = Object.keys(tools);
const begun = {};

function show(name) {
  for (const other of names) {
    const tab = $(`tab-${other}`);
    tab.setAttribute("aria-selected", String(other === name));
    tab.tabIndex = other === name ? 0 : -1;
    $(other).hidden = other !== name;
  }
  turnTo(name);
  begun[name] ??= tools[name]();
  begun[name].shown?.();
  if (location.hash !== `#${name}`) history.replaceState(null, "", `#${name}`);
}

for (const [place, name] of names.entries()) {
  const tab = $(`tab-${name}`);
  tab.addEventListener("click", () => show(name));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const other = names[(place + step + names.length) % names.length];
    show(other);
    $(`tab-${other}`).focus();
  });
}

startTheme();
const wanted = location.hash.slice(1);
show(names.includes(wanted) ? wanted : "curves");
window.addEventListener("hashchange", () => names.includes(location.hash.slice(1)) && show(location.hash.slice(1)));
window.fillinTimings = timings; // for whoever measures
