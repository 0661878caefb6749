// Curves: what is known is dragged, what belongs there follows.
import { $, make, say, onFile, download } from "./dom.js";
import { ask } from "./request.js";
import { onTheme } from "./theme.js";
import { drawCurve, legend } from "./curveplot.js";
import { parse, unitsOf, listed } from "./curvedata.js";

const PLAIN = { x0: 0, x1: 1, y0: 0, y1: 1 };
const EXAMPLE = [[-1.7, -0.35], [-1.25, 0.45], [-0.8, 0.75], [-0.1, -0.2], [0.2, -0.65], [1.3, 0.3], [1.6, 0.55]];
const NEAR = 22; // CSS pixels

const state = {
  points: EXAMPLE.map((point) => [...point]), model: "te-tnp", shift: 0, samples: 4, units: PLAIN, window: [-2.5, 2.5],
  range: [-2.2, 2.2], chosen: -1, told: null, look: null, looked: null, models: [], plot: null,
};

const request = () => ({ points: state.points, model: state.model, shift: state.shift, units: state.units });
const whole = () => ({ ...request(), window: state.window, samples: state.samples });

function predict() {
  ask("curve", "/api/curves", whole(), (told) => {
    state.told = told;
    verdict();
    draw();
  });
}

function look(at) {
  state.look = at;
  if (at === null) {
    state.looked = null;
    draw();
    return;
  }
  ask("attention", "/api/curves/attention", { ...request(), at }, (told) => {
    if (state.look === null) return;
    state.looked = { at, ...told };
    draw();
  });
}

function draw() {
  state.plot = drawCurve($("curve-canvas"), state);
  $("curve-canvas").setAttribute("aria-label", pictured());
  legend($("curve-legend"), state);
}

/** The picture in words. */
function pictured() {
  const known = `${state.points.length} known point${state.points.length === 1 ? "" : "s"}`;
  if (!state.told) return known;
  const { mean, low95, high95 } = state.told;
  const [low, high] = [Math.min(...mean), Math.max(...mean)].map((v) => Number(v.toPrecision(2)));
  const widest = Math.max(...high95.map((v, i) => v - low95[i])).toPrecision(2);
  return `${known}; the mean goes from ${low} to ${high}, and the band that holds 95 % is at most ${Number(widest)} wide`;
}

function verdict() {
  const { change } = state.told;
  if (change === null) {
    $("curve-verdict").textContent = "";
    return;
  }
  const size = 0.01 * state.units.y1;
  $("curve-verdict").textContent = change < size
    ? "Moved with the points: the prediction is the same. This model is translation equivariant."
    : `The mean changed by up to ${Number(change.toPrecision(2))}: this model knows places, and has never been here.`;
}

function changed(text) {
  if (text) say(text);
  predict();
  draw();
}

function describe(i) {
  const [x, y] = state.points[i];
  return `point ${i + 1} of ${state.points.length}: x ${x.toPrecision(3)}, y ${y.toPrecision(3)}`;
}

function add(x, y) {
  if (state.points.length >= 200) return say("200 points are the most", true);
  state.points.push([x, y]);
  state.chosen = state.points.length - 1;
  changed(`Added ${describe(state.chosen)}`);
}

function remove(i) {
  if (i < 0) return;
  state.points.splice(i, 1);
  state.chosen = Math.min(i, state.points.length - 1);
  state.looked = null;
  changed(`Removed a point; ${state.points.length} are left`);
}

/** The nearest place that is shown. */
function within(x, y) {
  const clip = (v, [low, high]) => Math.min(high, Math.max(low, v));
  return [clip(x, state.window), clip(y, state.range)];
}

function place(event) {
  const box = $("curve-canvas").getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

function nearest([px, py]) {
  let [best, far] = [-1, NEAR];
  for (const [i, [x, y]] of state.points.entries()) {
    const distance = Math.hypot(state.plot.px(x) - px, state.plot.py(y) - py);
    if (distance < far) [best, far] = [i, distance];
  }
  return best;
}

function mouse() {
  const canvas = $("curve-canvas");
  let held = -1;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const at = place(event);
    held = nearest(at);
    canvas.setPointerCapture(event.pointerId);
    if (held < 0) {
      add(state.plot.x(at[0]), state.plot.y(at[1]));
      held = state.points.length - 1;
    } else {
      state.chosen = held;
      draw();
    }
    state.look = state.looked = null;
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = place(event);
    if (held >= 0) {
      state.points[held] = within(state.plot.x(at[0]), state.plot.y(at[1]));
      changed();
    } else if (event.pointerType !== "touch") {
      canvas.style.cursor = nearest(at) >= 0 ? "grab" : "crosshair";
      look(state.plot.x(at[0]));
    }
  });
  const release = () => {
    if (held >= 0) say(`Moved ${describe(held)}`);
    held = -1;
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => held < 0 && look(null));
  canvas.addEventListener("dblclick", (event) => remove(nearest(place(event))));
  canvas.addEventListener("contextmenu", (event) => {
    event.preventDefault();
    remove(nearest(place(event)));
  });
}

function keys(event) {
  const { points, window: [low, high], range } = state;
  const step = event.shiftKey ? 0.1 : 0.02;
  const move = {
    ArrowLeft: [-step * (high - low) / 2, 0], ArrowRight: [step * (high - low) / 2, 0],
    ArrowUp: [0, step * (range[1] - range[0]) / 2], ArrowDown: [0, -step * (range[1] - range[0]) / 2],
  }[event.key];
  if (move && state.chosen >= 0) {
    points[state.chosen] = within(...points[state.chosen].map((v, i) => v + move[i]));
    changed(`Moved ${describe(state.chosen)}`);
  } else if (event.key === "Enter") {
    add((low + high) / 2, (range[0] + range[1]) / 2);
  } else if (event.key === "Delete" || event.key === "Backspace") {
    remove(state.chosen);
  } else if (["n", "p"].includes(event.key.toLowerCase()) && points.length && !event.ctrlKey && !event.metaKey) {
    const back = event.key.toLowerCase() === "p";
    state.chosen = (Math.max(state.chosen, back ? 0 : -1) + (back ? points.length - 1 : 1)) % points.length;
    say(`Chose ${describe(state.chosen)}`);
    look(points[state.chosen][0]);
    draw();
  } else return;
  event.preventDefault();
}

function use(text) {
  try {
    const { points, left } = parse(text);
    Object.assign(state, unitsOf(points), { points, chosen: -1, look: null, looked: null });
    changed(`${points.length} points${left ? `; ${left} more were left out, 200 are the most` : ""}`);
  } catch (error) {
    say(error.message, true);
  }
}

function reset(points) {
  Object.assign(state, { points, units: PLAIN, window: [-2.5, 2.5], range: [-2.2, 2.2], chosen: -1, looked: null });
  changed(points.length ? "The example" : "No point is known: this is what the model expects of any curve");
}

function choices(models) {
  state.models = models;
  for (const model of models) {
    const input = make("input", {
      type: "radio", name: "model", value: model.name, checked: model.name === state.model,
      onchange: () => {
        state.model = model.name;
        state.looked = null;
        $("curve-about").textContent = model.about;
        changed(`${model.title} is asked`);
      },
    });
    $("curve-models").append(make("label", {}, input, make("span", {}, model.title)));
  }
  $("curve-about").textContent = models.find((model) => model.name === state.model).about;
}

function slider(id, key, shown) {
  $(id).addEventListener("input", () => {
    state[key] = Number($(id).value);
    $(`${id}-out`).textContent = shown(state[key]);
    changed();
  });
}

export function startCurves() {
  ask("models", "/api/curves/models", undefined, choices);
  mouse();
  $("curve-plot").addEventListener("keydown", keys);
  slider("curve-shift", "shift", (v) => `${v > 0 ? "+" : ""}${v}`);
  slider("curve-samples", "samples", String);
  $("curve-clear").addEventListener("click", () => reset([]));
  $("curve-example").addEventListener("click", () => reset(EXAMPLE.map((point) => [...point])));
  $("curve-read").addEventListener("click", () => use($("curve-csv").value));
  onFile($("curve-plot"), $("curve-file"), async (file) => {
    if (file.size > 2e6) return say("The file has more than 2 MB", true);
    use(await file.text());
  });
  $("curve-get-csv").addEventListener("click", () => state.told && download("curve.csv", listed(state), "text/csv"));
  $("curve-get-png").addEventListener("click", () => $("curve-canvas").toBlob((blob) => download("curve.png", blob)));
  $("curve-get-code").addEventListener("click", () =>
    ask("code", "/api/curves/code", whole(), (text) => download("curve.py", text, "text/x-python"), { text: true }));
  $("curve-form").addEventListener("submit", (event) => event.preventDefault());
  new ResizeObserver(draw).observe($("curve-plot"));
  onTheme(draw);
  predict();
  return { shown: draw };
}
