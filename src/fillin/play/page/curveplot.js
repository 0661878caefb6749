// How a curve is drawn: bands, samples, the mean, what is known, and what each head looks at.
import { fitted, make } from "./dom.js";
import { colour, heads, isDark } from "./theme.js";
import { axes, line, scales } from "./plot.js";

export function drawCurve(canvas, state) {
  const { context, width, height } = fitted(canvas);
  const moved = state.shift * state.units.x1;
  const plot = scales(state.window, state.range, { left: 46, right: 14, top: 14, bottom: 30, width, height });
  axes(context, plot, moved, { line: colour("line"), text: colour("soft") });
  const { told } = state;
  context.save();
  context.beginPath();
  context.rect(plot.left, plot.top, plot.right - plot.left, plot.bottom - plot.top);
  context.clip();
  if (told) {
    const home = (told.x[0] + told.x[told.x.length - 1]) / 2 - (state.window[0] + state.window[1]) / 2;
    const px = told.x.map((x) => plot.px(x - home));
    band(context, px, told.low95.map(plot.py), told.high95.map(plot.py), colour("band95"));
    band(context, px, told.low50.map(plot.py), told.high50.map(plot.py), colour("band50"));
    for (const y of told.samples) line(context, px, y.map(plot.py), colour("accent"), 1, 0.55);
    if (told.unmoved) line(context, px, told.unmoved.map(plot.py), colour("ink"), 1.5, 0.7, [5, 5]);
    line(context, px, told.mean.map(plot.py), colour("accent"), 2.5, 1);
  }
  if (state.looked) looks(context, plot, state);
  for (const [i, [x, y]] of state.points.entries()) point(context, plot.px(x), plot.py(y), i === state.chosen);
  context.restore();
  if (!state.points.length) {
    context.fillStyle = colour("soft");
    context.textAlign = "center";
    context.font = "15px system-ui, sans-serif";
    context.fillText("Click anywhere: that is known", width / 2, plot.top + 28);
  }
  return plot;
}

function band(context, x, low, high, fill) {
  context.beginPath();
  for (const [i, v] of x.entries()) i ? context.lineTo(v, high[i]) : context.moveTo(v, high[i]);
  for (let i = x.length - 1; i >= 0; i--) context.lineTo(x[i], low[i]);
  context.closePath();
  context.fillStyle = fill;
  context.fill();
}

function point(context, x, y, chosen) {
  context.beginPath();
  context.arc(x, y, chosen ? 7.5 : 5.5, 0, 2 * Math.PI);
  context.fillStyle = colour("ink");
  context.fill();
  context.lineWidth = 2;
  context.strokeStyle = chosen ? colour("accent") : colour("panel");
  context.stroke();
}

/** Around each point an arc for each head: the wider and thicker, the more it is looked at. */
function looks(context, plot, { looked, points, chosen }) {
  const x = plot.px(looked.at), colours = heads();
  line(context, [x, x], [plot.top, plot.bottom], colour("soft"), 1, 0.8, [2, 4]);
  for (const [h, weights] of looked.heads.entries()) {
    const most = Math.max(...weights.map(Math.abs), 1e-9);
    const turn = (2 * Math.PI) / looked.heads.length;
    for (const [j, weight] of weights.entries()) {
      if (j >= points.length) break;
      const share = Math.abs(weight) / most;
      if (share < 0.03) continue;
      const [px, py] = [plot.px(points[j][0]), plot.py(points[j][1])];
      context.beginPath();
      context.moveTo(px, py);
      context.arc(px, py, 9 + 17 * Math.sqrt(share), h * turn - Math.PI / 2, (h + 1) * turn - Math.PI / 2);
      context.closePath();
      context.globalAlpha = 0.2 + 0.6 * share;
      context.fillStyle = colours[h % colours.length];
      context.fill();
    }
  }
  context.globalAlpha = 1;
}

const mark = (content) => make("svg", { viewBox: "0 0 22 12", "aria-hidden": "true" }, content);

/** What the colours mean; made anew only where that has changed, not at each move of the hand. */
export function legend(list, state) {
  const accent = colour("accent");
  const shown = JSON.stringify([isDark(), Boolean(state.told?.unmoved), state.looked?.heads.length, state.looked?.what]);
  if (list.dataset.shown === shown) return;
  list.dataset.shown = shown;
  const stroke = (width, more = {}) =>
    mark(make("line", { x1: 0, x2: 22, y1: 6, y2: 6, stroke: accent, "stroke-width": width, ...more }));
  const items = [
    [stroke(3), "mean"],
    [mark(make("rect", { width: 22, height: 12, fill: colour("band50") })), "band of 50 %"],
    [mark(make("rect", { width: 22, height: 12, fill: colour("band95") })), "band of 95 %"],
    [stroke(1, { opacity: 0.7 }), "samples"],
  ];
  if (state.told?.unmoved) items.push([stroke(1.5, { stroke: colour("ink"), "stroke-dasharray": "4 3" }), "not moved"]);
  if (state.looked) {
    const colours = heads();
    for (const h of state.looked.heads.keys()) {
      const label = state.looked.heads.length > 1 ? `head ${h + 1}` : "weight";
      items.push([mark(make("circle", { cx: 11, cy: 6, r: 5.5, fill: colours[h % colours.length] })), label]);
    }
    items.push(["", state.looked.what]);
  }
  list.replaceChildren(...items.map(([picture, words]) => make("li", {}, picture, words)));
}
