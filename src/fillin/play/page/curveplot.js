// Drawing of a curve: prediction intervals, samples, mean, context points and attention weights.
import { dot, fitCanvas, make, swatch } from "./dom.js";
import { colour, headColours, isDark } from "./theme.js";
import { drawAxes, line, scales } from "./plot.js";

export function drawCurve(canvas, state) {
  const { context, width, height } = fitCanvas(canvas);
  const shift = state.shift * state.units.x1;
  const plot = scales(state.window, state.range, { left: 46, right: 14, top: 14, bottom: 30, width, height });
  drawAxes(context, plot, shift, { line: colour("line"), text: colour("soft") });
  const { prediction } = state;
  context.save();
  context.beginPath();
  context.rect(plot.left, plot.top, plot.right - plot.left, plot.bottom - plot.top);
  context.clip();
  if (prediction) {
    const { x, mean, low50, high50, low95, high95, samples, unshifted } = prediction;
    const offset = (x[0] + x[x.length - 1]) / 2 - (state.window[0] + state.window[1]) / 2;
    const px = x.map((v) => plot.px(v - offset));
    drawInterval(context, px, low95.map(plot.py), high95.map(plot.py), colour("interval95"));
    drawInterval(context, px, low50.map(plot.py), high50.map(plot.py), colour("interval50"));
    for (const y of samples) line(context, px, y.map(plot.py), colour("accent"), 1, 0.55);
    if (unshifted) line(context, px, unshifted.map(plot.py), colour("ink"), 1.5, 0.7, [5, 5]);
    line(context, px, mean.map(plot.py), colour("accent"), 2.5, 1);
  }
  if (state.attention) drawAttention(context, plot, state);
  for (const [i, [x, y]] of state.points.entries()) drawPoint(context, plot.px(x), plot.py(y), i === state.selected);
  context.restore();
  if (!state.points.length) {
    context.fillStyle = colour("soft");
    context.textAlign = "center";
    context.font = "15px system-ui, sans-serif";
    context.fillText("Click to add a point", width / 2, plot.top + 28);
  }
  return plot;
}

function drawInterval(context, x, low, high, fill) {
  context.beginPath();
  for (const [i, v] of x.entries()) i ? context.lineTo(v, high[i]) : context.moveTo(v, high[i]);
  for (let i = x.length - 1; i >= 0; i--) context.lineTo(x[i], low[i]);
  context.closePath();
  context.fillStyle = fill;
  context.fill();
}

function drawPoint(context, x, y, isSelected) {
  context.beginPath();
  context.arc(x, y, isSelected ? 7.5 : 5.5, 0, 2 * Math.PI);
  context.fillStyle = colour("ink");
  context.fill();
  context.lineWidth = 2;
  context.strokeStyle = isSelected ? colour("accent") : colour("panel");
  context.stroke();
}

/** Draw a sector per head around each point: the larger and the more opaque, the larger the weight. */
function drawAttention(context, plot, { attention, points }) {
  const x = plot.px(attention.at), colours = headColours();
  line(context, [x, x], [plot.top, plot.bottom], colour("soft"), 1, 0.8, [2, 4]);
  for (const [h, weights] of attention.heads.entries()) {
    const largest = Math.max(...weights.map(Math.abs), 1e-9);
    const angle = (2 * Math.PI) / attention.heads.length;
    for (const [j, weight] of weights.entries()) {
      if (j >= points.length) break;
      const relative = Math.abs(weight) / largest;
      if (relative < 0.03) continue;
      const [px, py] = [plot.px(points[j][0]), plot.py(points[j][1])];
      context.beginPath();
      context.moveTo(px, py);
      context.arc(px, py, 9 + 17 * Math.sqrt(relative), h * angle - Math.PI / 2, (h + 1) * angle - Math.PI / 2);
      context.closePath();
      context.globalAlpha = 0.2 + 0.6 * relative;
      context.fillStyle = colours[h % colours.length];
      context.fill();
    }
  }
  context.globalAlpha = 1;
}

/** Update the legend, only if it changes: not at each move of the pointer. */
export function updateLegend(list, { prediction, attention }) {
  const accent = colour("accent");
  const key = JSON.stringify([isDark(), Boolean(prediction?.unshifted), attention?.heads.length, attention?.description]);
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  const stroke = (width, attributes = {}) =>
    swatch(make("line", { x1: 0, x2: 22, y1: 6, y2: 6, stroke: accent, "stroke-width": width, ...attributes }));
  const area = (fill) => swatch(make("rect", { width: 22, height: 12, fill }));
  const items = [
    [stroke(3), "mean"],
    [area(colour("interval50")), "50 % interval"],
    [area(colour("interval95")), "95 % interval"],
    [stroke(1, { opacity: 0.7 }), "samples"],
  ];
  if (prediction?.unshifted) {
    items.push([stroke(1.5, { stroke: colour("ink"), "stroke-dasharray": "4 3" }), "mean without shift"]);
  }
  if (attention) {
    const colours = headColours();
    for (const h of attention.heads.keys()) {
      items.push([dot(colours[h % colours.length]), attention.heads.length > 1 ? `head ${h + 1}` : "weight"]);
    }
    items.push(["", attention.description]);
  }
  list.replaceChildren(...items.map(([mark, label]) => make("li", {}, mark, label)));
}
