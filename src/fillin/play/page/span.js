// Span: a window around every point, and what it saves.
import { $, announce, bar, fitCanvas, make } from "./dom.js";
import { send } from "./request.js";
import { colour, onTheme } from "./theme.js";

const MAX_LEARNING_POINTS = 4000;
const MIN_SHARE = 0.0005, MAX_SHARE = 0.5; // of the plane, covered by a window
const THRESHOLD = 0.1; // of the Gaussian, below which weights are zero: radius = σ √(−2 ln threshold)
const DEBOUNCE = 200; // milliseconds
const TITLES = { native: "Window, kernel", "window as a bias": "Window, dense", "fused, no window": "No window, dense" };
const state = { points: 0, share: 0, locations: null, radius: 0, centre: [0.5, 0.5] };
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

/** Sliders are logarithmic: from 100 to 20,000 points, from 0.05 % to 50 % of the plane. */
const toPoints = (v) => Math.round((100 * 200 ** (v / 100)) / 10) * 10;
const toShare = (v) => Number((MIN_SHARE * (MAX_SHARE / MIN_SHARE) ** (v / 100)).toPrecision(2));
const fromShare = (share) => Math.round((100 * Math.log(share / MIN_SHARE)) / Math.log(MAX_SHARE / MIN_SHARE));
const count = (n) => n.toLocaleString("en");

function readSliders() {
  state.points = toPoints(Number($("span-points").value));
  state.share = toShare(Number($("span-share").value));
  $("span-points-out").textContent = count(state.points);
  $("span-share-out").textContent = `${Number((100 * state.share).toPrecision(2))} %`;
  state.radius = Math.sqrt(state.share / Math.PI);
}

function loadLocations() {
  send("locations", `/api/span/points?points=${state.points}`, undefined, (locations) => {
    state.locations = locations;
    draw();
  });
}

function measure() {
  $("span-costs").setAttribute("aria-busy", "true");
  $("span-about").textContent = `Measuring ${count(state.points)} points …`;
  const { points, share } = state;
  send("span", "/api/span", { points, share }, (response) => {
    $("span-costs").removeAttribute("aria-busy");
    showCosts({ ...response, points });
    draw();
  }, {
    onError: (error) => {
      $("span-about").textContent = error.message;
    },
  });
}

function draw() {
  if (!state.locations || $("span").hidden) return;
  const { context, width } = fitCanvas($("span-canvas"));
  const { x, y } = state.locations, [cx, cy] = state.centre;
  const size = Math.max(1, Math.min(3, 160 / Math.sqrt(x.length)));
  const isInside = x.map((v, i) => (v - cx) ** 2 + (y[i] - cy) ** 2 < state.radius ** 2);
  const [px, py, r] = [cx * width, (1 - cy) * width, state.radius * width];
  const gradient = context.createRadialGradient(px, py, 0, px, py, r);
  gradient.addColorStop(0, colour("interval50"));
  gradient.addColorStop(1, colour("interval95"));
  context.fillStyle = gradient;
  context.beginPath();
  context.arc(px, py, r, 0, 2 * Math.PI);
  context.fill();
  for (const [inside, ink, alpha] of [[false, colour("soft"), 0.55], [true, colour("accent"), 1]]) {
    context.fillStyle = ink;
    context.globalAlpha = alpha;
    for (let i = 0; i < x.length; i++) {
      if (isInside[i] === inside) context.fillRect(x[i] * width - size / 2, (1 - y[i]) * width - size / 2, size, size);
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
  const sigma = state.radius / Math.sqrt(-2 * Math.log(THRESHOLD));
  $("span-window").textContent = `${count(isInside.filter(Boolean).length)} of ${count(x.length)} points are inside ` +
    `this window of radius ${state.radius.toFixed(3)}, σ ${sigma.toFixed(3)}`;
}

function formatTime(ms) {
  if (ms >= 10000) return `${(ms / 1000).toFixed(0)} s`;
  return `${ms.toFixed(ms < 1 ? 2 : ms < 100 ? 1 : 0)} ms`;
}
function formatMemory(mb) {
  if (mb === null) return "memory unknown";
  return mb < 1000 ? `${mb.toFixed(mb < 10 ? 1 : 0)} MB` : `${(mb / 1000).toFixed(1)} GB`;
}

function showCosts({ costs, machine, points, fraction_inside: inside }) {
  const longest = Math.max(...costs.map((cost) => Math.log10(1 + cost.milliseconds)));
  $("span-costs").replaceChildren(...costs.map((cost) => make("div", {},
    make("h3", {}, TITLES[cost.name] ?? cost.name),
    bar(Math.log10(1 + cost.milliseconds) / longest, cost.measured ? "mark" : "estimate"),
    make("div", { class: "figures" },
      make("b", {}, `${cost.measured ? "" : "≈ "}${formatTime(cost.milliseconds)}`),
      make("span", {}, formatMemory(cost.megabytes)), make("span", {}, `${count(cost.pairs)} pairs`)),
    make("p", {}, cost.measured ? cost.description : `${cost.description}. Estimated: too expensive to run here`))));
  const [kernel, dense] = costs;
  $("span-about").textContent = `Forward and backward, 4 heads of dimension 16, ${machine}; bars are logarithmic. ` +
    `${(100 * inside).toPrecision(2)} % of the pairs of ${count(points)} points are inside a window.`;
  announce(`${count(points)} points: the kernel takes ${formatTime(kernel.milliseconds)}, ` +
    `dense attention ${(dense.milliseconds / kernel.milliseconds).toPrecision(2)} times as long`);
}

function learn() {
  const body = { points: Math.min(MAX_LEARNING_POINTS, state.points) };
  send("learn", "/api/span/learn", body, ({ radius, error }) => {
    let step = reducedMotion.matches ? radius.length - 1 : 0;
    const showNext = () => {
      state.radius = radius[step];
      $("span-learned").textContent = `Step ${step + 1} of ${radius.length}: radius ${radius[step].toFixed(3)}, ` +
        `squared error ${error[step].toFixed(3)}`;
      draw();
      step += 1;
      if (step < radius.length) setTimeout(showNext, 50);
      else useLearned();
    };
    showNext();
  });
}

/** Set the slider to the learned window and measure it. */
function useLearned() {
  const radius = state.radius;
  const share = Math.max(MIN_SHARE, Math.min(MAX_SHARE, Math.PI * radius ** 2));
  $("span-share").value = fromShare(share);
  readSliders();
  state.radius = radius;
  announce(`Learned a window of radius ${radius.toFixed(3)}`);
  measure();
}

function moveWindow() {
  const canvas = $("span-canvas");
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    state.centre = [(event.clientX - box.left) / box.width, 1 - (event.clientY - box.top) / box.height];
    draw();
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (!step) return;
    event.preventDefault();
    state.centre = state.centre.map((v, i) => Math.max(0, Math.min(1, v + 0.03 * step[i])));
    draw();
    announce($("span-window").textContent);
  });
}

export function startSpan() {
  readSliders();
  loadLocations();
  measure();
  moveWindow();
  let timer;
  const debounce = (update) => {
    clearTimeout(timer);
    timer = setTimeout(update, DEBOUNCE);
  };
  $("span-points").addEventListener("input", () => {
    readSliders();
    debounce(() => {
      loadLocations();
      measure();
    });
  });
  $("span-share").addEventListener("input", () => {
    readSliders();
    draw();
    debounce(measure);
  });
  $("span-learn").addEventListener("click", learn);
  $("span-form").addEventListener("submit", (event) => event.preventDefault());
  new ResizeObserver(draw).observe($("span-canvas"));
  onTheme(draw);
  return { onShow: draw };
}
