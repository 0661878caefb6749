// Span: a window around every point, and what it saves.
import { $, bar, fitted, make, say } from "./dom.js";
import { ask } from "./request.js";
import { colour, onTheme } from "./theme.js";

const state = { points: 0, share: 0, places: null, told: null, radius: 0, at: [0.5, 0.5], learnt: false };
const still = matchMedia("(prefers-reduced-motion: reduce)");

/** Sliders go by factors: from 100 to 20,000 points, from 0.05 % to 50 % of the plane. */
const pointsOf = (v) => Math.round((100 * 200 ** (v / 100)) / 10) * 10;
const shareOf = (v) => Number((0.0005 * 1000 ** (v / 100)).toPrecision(2));

function read() {
  state.points = pointsOf(Number($("span-points").value));
  state.share = shareOf(Number($("span-share").value));
  $("span-points-out").textContent = state.points.toLocaleString("en");
  $("span-share-out").textContent = `${Number((100 * state.share).toPrecision(2))} %`;
  state.radius = Math.sqrt(state.share / Math.PI);
}

function places() {
  ask("places", `/api/span/points?points=${state.points}`, undefined, (found) => {
    state.places = found;
    draw();
  });
}

function measure() {
  $("span-costs").setAttribute("aria-busy", "true");
  $("span-about").textContent = `Measuring ${state.points.toLocaleString("en")} points …`;
  const { points, share } = state;
  ask("span", "/api/span", { points, share }, (told) => {
    state.told = { ...told, points };
    $("span-costs").removeAttribute("aria-busy");
    costs();
    draw();
  }, {
    failed: (error) => {
      $("span-about").textContent = error.message;
    },
  });
}

function within() {
  const { x, y } = state.places, [cx, cy] = state.at, far = state.radius ** 2;
  const found = [];
  for (let i = 0; i < x.length; i++) if ((x[i] - cx) ** 2 + (y[i] - cy) ** 2 < far) found.push(i);
  return found;
}

function draw() {
  if (!state.places || $("span").hidden) return;
  const { context, width } = fitted($("span-canvas"));
  const { x, y } = state.places;
  const size = Math.max(1, Math.min(3, 160 / Math.sqrt(x.length)));
  const inside = new Set(within());
  const [px, py, r] = [state.at[0] * width, (1 - state.at[1]) * width, state.radius * width];
  const glow = context.createRadialGradient(px, py, 0, px, py, r);
  glow.addColorStop(0, colour("band50"));
  glow.addColorStop(1, colour("band95"));
  context.fillStyle = glow;
  context.beginPath();
  context.arc(px, py, r, 0, 2 * Math.PI);
  context.fill();
  for (const [kind, ink, alpha] of [[false, colour("soft"), 0.55], [true, colour("accent"), 1]]) {
    context.fillStyle = ink;
    context.globalAlpha = alpha;
    for (let i = 0; i < x.length; i++) {
      if (inside.has(i) === kind) context.fillRect(x[i] * width - size / 2, (1 - y[i]) * width - size / 2, size, size);
    }
  }
  context.globalAlpha = 1;
  context.strokeStyle = colour("accent");
  context.lineWidth = 2;
  context.stroke();
  context.beginPath();
  context.arc(px, py, 4, 0, 2 * Math.PI);
  context.fillStyle = colour("ink");
  context.fill();
  $("span-here").textContent = `${inside.size.toLocaleString("en")} of ${x.length.toLocaleString("en")} points are inside ` +
    `this window of radius ${state.radius.toFixed(3)}, σ ${(state.radius / Math.sqrt(-2 * Math.log(0.1))).toFixed(3)}`;
}

function time(ms) {
  if (ms >= 10000) return `${(ms / 1000).toFixed(0)} s`;
  return `${ms.toFixed(ms < 1 ? 2 : ms < 100 ? 1 : 0)} ms`;
}
function memory(mb) {
  if (mb === null) return "memory unknown";
  return mb < 1000 ? `${mb.toFixed(mb < 10 ? 1 : 0)} MB` : `${(mb / 1000).toFixed(1)} GB`;
}

function costs() {
  const most = Math.max(...state.told.costs.map((cost) => Math.log10(1 + cost.milliseconds)));
  const titles = {
    native: "Window, our kernel", "window as a bias": "Window, dense", "fused, no window": "No window, dense",
  };
  $("span-costs").replaceChildren(...state.told.costs.map((cost) => make("div", {},
    make("h3", {}, titles[cost.name] ?? cost.name),
    bar(Math.log10(1 + cost.milliseconds) / most, cost.measured ? "mark" : "guess"),
    make("div", { class: "figures" },
      make("b", {}, `${cost.measured ? "" : "≈ "}${time(cost.milliseconds)}`), make("span", {}, memory(cost.megabytes)),
      make("span", {}, `${cost.pairs.toLocaleString("en")} pairs`)),
    make("p", {}, cost.measured ? cost.about : `${cost.about}. Estimated: too dear to run here`))));
  const [native, bias] = state.told.costs;
  const faster = bias.milliseconds / native.milliseconds;
  $("span-about").textContent = `Forward and backward, 4 heads of 16, ${state.told.machine}; bars are logarithmic. ` +
    `Of ${state.told.points.toLocaleString("en")} points, ${(100 * state.told.inside).toPrecision(2)} % of all pairs are inside.`;
  say(`${state.told.points.toLocaleString("en")} points: our kernel takes ${time(native.milliseconds)}, ` +
    `${faster.toPrecision(2)} times less than dense`);
}

function learn() {
  const body = { points: Math.min(4000, state.points) };
  ask("learn", "/api/span/learn", body, ({ radius, error }) => {
    let step = still.matches ? radius.length - 1 : 0;
    const next = () => {
      state.radius = radius[step];
      $("span-learnt").textContent = `Step ${step + 1} of ${radius.length}: radius ${radius[step].toFixed(3)}, ` +
        `squared error ${error[step].toFixed(3)}`;
      draw();
      step += 1;
      if (step < radius.length) setTimeout(next, 50);
      else settle();
    };
    next();
  });
}

/** The sliders say what was learned, and it is measured. */
function settle() {
  const share = Math.max(0.0005, Math.min(0.5, Math.PI * state.radius ** 2));
  $("span-share").value = Math.round((100 * Math.log(share / 0.0005)) / Math.log(1000));
  const learnt = state.radius;
  read();
  state.radius = learnt;
  say(`Learned a window of radius ${learnt.toFixed(3)}`);
  measure();
}

function mouse() {
  const canvas = $("span-canvas");
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    state.at = [(event.clientX - box.left) / box.width, 1 - (event.clientY - box.top) / box.height];
    draw();
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (!step) return;
    event.preventDefault();
    state.at = state.at.map((v, i) => Math.max(0, Math.min(1, v + 0.03 * step[i])));
    draw();
    say($("span-here").textContent);
  });
}

export function startSpan() {
  read();
  places();
  measure();
  mouse();
  let wait;
  const soon = (more) => {
    clearTimeout(wait);
    wait = setTimeout(() => {
      more();
      measure();
    }, 200);
  };
  $("span-points").addEventListener("input", () => {
    read();
    soon(places);
  });
  $("span-share").addEventListener("input", () => {
    read();
    draw();
    soon(() => {});
  });
  $("span-learn").addEventListener("click", learn);
  $("span-form").addEventListener("submit", (event) => event.preventDefault());
  new ResizeObserver(draw).observe($("span-canvas"));
  onTheme(draw);
  return { shown: draw };
}
