// Curves: the prediction follows the points that are dragged.
import { $, announce, download, make, onFile } from "./dom.js";
import { send } from "./request.js";
import { onTheme } from "./theme.js";
import { drawCurve, updateLegend } from "./curveplot.js";
import { parse, toCsv, unitsOf } from "./curvedata.js";

const MAX_POINTS = 200;
const EXAMPLE = [[-1.7, -0.35], [-1.25, 0.45], [-0.8, 0.75], [-0.1, -0.2], [0.2, -0.65], [1.3, 0.3], [1.6, 0.55]];
const DEFAULT_VIEW = { units: { x0: 0, x1: 1, y0: 0, y1: 1 }, window: [-2.5, 2.5], range: [-2.2, 2.2] };
const GRAB_RADIUS = 22; // CSS pixels

const state = {
  ...DEFAULT_VIEW, points: EXAMPLE.map((point) => [...point]), model: "te-tnp", shift: 0, samples: 4,
  selected: -1, prediction: null, target: null, attention: null, plot: null,
};

const contextRequest = () => ({ points: state.points, model: state.model, shift: state.shift, units: state.units });
const curveRequest = () => ({ ...contextRequest(), window: state.window, samples: state.samples });

function predict() {
  send("curve", "/api/curves", curveRequest(), (prediction) => {
    state.prediction = prediction;
    describeShift();
    draw();
  });
}

function showAttention(at) {
  state.target = at;
  if (at === null) {
    state.attention = null;
    draw();
    return;
  }
  send("attention", "/api/curves/attention", { ...contextRequest(), at }, (response) => {
    if (state.target === null) return;
    state.attention = { at, ...response };
    draw();
  });
}

function draw() {
  state.plot = drawCurve($("curve-canvas"), state);
  $("curve-canvas").setAttribute("aria-label", describePlot());
  updateLegend($("curve-legend"), state);
}

/** Describe the plot in words, for screen readers. */
function describePlot() {
  const points = `${state.points.length} observed point${state.points.length === 1 ? "" : "s"}`;
  if (!state.prediction) return points;
  const { mean, low95, high95 } = state.prediction;
  const [low, high] = [Math.min(...mean), Math.max(...mean)].map((v) => Number(v.toPrecision(2)));
  const widest = Math.max(...high95.map((v, i) => v - low95[i])).toPrecision(2);
  return `${points}; the mean ranges from ${low} to ${high}, the 95 % interval is at most ${Number(widest)} wide`;
}

function describeShift() {
  const change = state.prediction.max_change;
  if (change === null) $("curve-equivariance").textContent = "";
  else if (change < 0.01 * state.units.y1) {
    $("curve-equivariance").textContent = "The prediction shifts with the points: this model is translation equivariant.";
  } else {
    $("curve-equivariance").textContent = `The mean changes by up to ${Number(change.toPrecision(2))}: this model ` +
      "depends on absolute locations, and was not trained on these.";
  }
}

function update(message) {
  if (message) announce(message);
  predict();
  draw();
}

function describePoint(i) {
  const [x, y] = state.points[i];
  return `point ${i + 1} of ${state.points.length}: x ${x.toPrecision(3)}, y ${y.toPrecision(3)}`;
}

function add(x, y) {
  if (state.points.length >= MAX_POINTS) return announce(`At most ${MAX_POINTS} points are possible`, true);
  state.points.push([x, y]);
  state.selected = state.points.length - 1;
  update(`Added ${describePoint(state.selected)}`);
}

function remove(i) {
  if (i < 0) return;
  state.points.splice(i, 1);
  state.selected = Math.min(i, state.points.length - 1);
  state.attention = null;
  update(`Removed a point; ${state.points.length} are left`);
}

/** The nearest location inside the plot. */
function clip(x, y) {
  const within = (v, [low, high]) => Math.min(high, Math.max(low, v));
  return [within(x, state.window), within(y, state.range)];
}

function pointerPosition(event) {
  const box = $("curve-canvas").getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

function nearestPoint([px, py]) {
  let [nearest, least] = [-1, GRAB_RADIUS];
  for (const [i, [x, y]] of state.points.entries()) {
    const distance = Math.hypot(state.plot.px(x) - px, state.plot.py(y) - py);
    if (distance < least) [nearest, least] = [i, distance];
  }
  return nearest;
}

function listenToPointer() {
  const canvas = $("curve-canvas");
  let dragged = -1;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const position = pointerPosition(event);
    dragged = nearestPoint(position);
    canvas.setPointerCapture(event.pointerId);
    if (dragged < 0) {
      add(state.plot.x(position[0]), state.plot.y(position[1]));
      dragged = state.points.length - 1;
    } else {
      state.selected = dragged;
      draw();
    }
    state.target = state.attention = null;
  });
  canvas.addEventListener("pointermove", (event) => {
    const position = pointerPosition(event);
    if (dragged >= 0) {
      state.points[dragged] = clip(state.plot.x(position[0]), state.plot.y(position[1]));
      update();
    } else if (event.pointerType !== "touch") {
      canvas.style.cursor = nearestPoint(position) >= 0 ? "grab" : "crosshair";
      showAttention(state.plot.x(position[0]));
    }
  });
  const release = () => {
    if (dragged >= 0) announce(`Moved ${describePoint(dragged)}`);
    dragged = -1;
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => dragged < 0 && showAttention(null));
  canvas.addEventListener("dblclick", (event) => remove(nearestPoint(pointerPosition(event))));
  canvas.addEventListener("contextmenu", (event) => {
    event.preventDefault();
    remove(nearestPoint(pointerPosition(event)));
  });
}

function onKey(event) {
  const { points, window: [low, high], range } = state;
  const step = event.shiftKey ? 0.1 : 0.02;
  const move = {
    ArrowLeft: [-step * (high - low) / 2, 0], ArrowRight: [step * (high - low) / 2, 0],
    ArrowUp: [0, step * (range[1] - range[0]) / 2], ArrowDown: [0, -step * (range[1] - range[0]) / 2],
  }[event.key];
  if (move && state.selected >= 0) {
    points[state.selected] = clip(...points[state.selected].map((v, i) => v + move[i]));
    update(`Moved ${describePoint(state.selected)}`);
  } else if (event.key === "Enter") {
    add((low + high) / 2, (range[0] + range[1]) / 2);
  } else if (event.key === "Delete" || event.key === "Backspace") {
    remove(state.selected);
  } else if (["n", "p"].includes(event.key.toLowerCase()) && points.length && !event.ctrlKey && !event.metaKey) {
    const back = event.key.toLowerCase() === "p";
    state.selected = (Math.max(state.selected, back ? 0 : -1) + (back ? points.length - 1 : 1)) % points.length;
    announce(`Selected ${describePoint(state.selected)}`);
    showAttention(points[state.selected][0]);
    draw();
  } else return;
  event.preventDefault();
}

function load(text) {
  try {
    const { points, omitted } = parse(text);
    Object.assign(state, unitsOf(points), { points, selected: -1, target: null, attention: null });
    update(`${points.length} points${omitted ? `; ${omitted} more were omitted, the maximum is ${MAX_POINTS}` : ""}`);
  } catch (error) {
    announce(error.message, true);
  }
}

function reset(points) {
  Object.assign(state, DEFAULT_VIEW, { points, selected: -1, attention: null });
  update(points.length ? "The example" : "No points: this is the prior of the model");
}

function listModels(models) {
  for (const model of models) {
    const input = make("input", {
      type: "radio", name: "model", value: model.name, checked: model.name === state.model,
      onchange: () => {
        state.model = model.name;
        state.attention = null;
        $("curve-about").textContent = model.description;
        update(`Model: ${model.title}`);
      },
    });
    $("curve-models").append(make("label", {}, input, make("span", {}, model.title)));
  }
  $("curve-about").textContent = models.find((model) => model.name === state.model).description;
}

function onSlider(id, key, format) {
  $(id).addEventListener("input", () => {
    state[key] = Number($(id).value);
    $(`${id}-out`).textContent = format(state[key]);
    update();
  });
}

export function startCurves() {
  send("models", "/api/curves/models", undefined, listModels);
  listenToPointer();
  $("curve-plot").addEventListener("keydown", onKey);
  onSlider("curve-shift", "shift", (v) => `${v > 0 ? "+" : ""}${v}`);
  onSlider("curve-samples", "samples", String);
  $("curve-clear").addEventListener("click", () => reset([]));
  $("curve-example").addEventListener("click", () => reset(EXAMPLE.map((point) => [...point])));
  $("curve-load").addEventListener("click", () => load($("curve-csv").value));
  onFile($("curve-plot"), $("curve-file"), async (file) => {
    if (file.size > 2e6) return announce("The file is larger than 2 MB", true);
    load(await file.text());
  });
  $("curve-get-csv").addEventListener("click", () =>
    state.prediction && download("curve.csv", toCsv(state.prediction), "text/csv"));
  $("curve-get-png").addEventListener("click", () => $("curve-canvas").toBlob((blob) => download("curve.png", blob)));
  $("curve-get-code").addEventListener("click", () =>
    send("code", "/api/curves/code", curveRequest(), (text) => download("curve.py", text, "text/x-python"), { text: true }));
  $("curve-form").addEventListener("submit", (event) => event.preventDefault());
  new ResizeObserver(draw).observe($("curve-plot"));
  onTheme(draw);
  predict();
  return { onShow: draw };
}
