// Axes and lines on a canvas.

/** Mappings between data and pixels. */
export function scales([x0, x1], [y0, y1], { left, right, top, bottom, width, height }) {
  const box = { left, right: width - right, top, bottom: height - bottom };
  const [w, h] = [box.right - box.left, box.bottom - box.top];
  return {
    ...box, xs: [x0, x1], ys: [y0, y1],
    px: (x) => box.left + ((x - x0) / (x1 - x0)) * w,
    py: (y) => box.bottom - ((y - y0) / (y1 - y0)) * h,
    x: (px) => x0 + ((px - box.left) / w) * (x1 - x0),
    y: (py) => y0 + ((box.bottom - py) / h) * (y1 - y0),
  };
}

/** Round numbers between two ends, about `count` of them, and the decimals they need. */
function ticks(low, high, count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((k) => k * power >= raw);
  const values = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) values.push(i * step);
  return { values, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

const format = (v, digits) =>
  (Math.abs(v) >= 1e5 || digits > 4 ? v.toPrecision(3) : v.toFixed(digits)).replace("-", "−");

export function drawAxes(context, plot, shift, colours) {
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = colours.text;
  context.strokeStyle = colours.line;
  context.lineWidth = 1;
  const [x0, x1] = plot.xs.map((v) => v + shift);
  const xTicks = ticks(x0, x1, Math.max(3, Math.min(10, (plot.right - plot.left) / 80)));
  context.textAlign = "center";
  for (const v of xTicks.values) {
    const px = Math.round(plot.px(v - shift)) + 0.5;
    stroke(context, [px, px], [plot.top, plot.bottom]);
    context.fillText(format(v, xTicks.digits), px, plot.bottom + 19);
  }
  const yTicks = ticks(...plot.ys, Math.max(3, (plot.bottom - plot.top) / 70));
  context.textAlign = "right";
  for (const v of yTicks.values) {
    const py = Math.round(plot.py(v)) + 0.5;
    stroke(context, [plot.left, plot.right], [py, py]);
    context.fillText(format(v, yTicks.digits), plot.left - 8, py + 4);
  }
}

function stroke(context, x, y) {
  context.beginPath();
  for (const [i, v] of x.entries()) i ? context.lineTo(v, y[i]) : context.moveTo(v, y[i]);
  context.stroke();
}

export function line(context, x, y, colour, width, alpha = 1, dash = []) {
  Object.assign(context, { strokeStyle: colour, lineWidth: width, globalAlpha: alpha, lineJoin: "round" });
  context.setLineDash(dash);
  stroke(context, x, y);
  context.setLineDash([]);
  context.globalAlpha = 1;
}
