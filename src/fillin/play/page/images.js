// Images: the user paints the observed pixels, the model predicts the others.
import { $, announce, dot, make, onFile } from "./dom.js";
import { send } from "./request.js";
import { colour, headColours, onTheme } from "./theme.js";
import { drawAttention, drawObserved, drawPixels, drawUrl, outline } from "./imageplot.js";

const MAX_DIGITS_SIDE = 32; // pixels, of images for the digits model (limits.py repeats this number)
const MAX_INTERACTIVE_CELLS = 4000; // of a completion that is computed while the user paints
const TRAINED_ON = { digits: "digits", "sheet-2d": "random functions" };
const state = {
  image: null, model: "digits", chosenModel: null, // by the user
  pattern: "few", observed: new Set(), seed: 0, scale: 4, completion: null, target: null, attention: null, layer: 8,
  cursor: [0, 0],
};
const contextRequest = () => ({
  image: state.image, model: state.model, pattern: state.pattern, seed: state.seed,
  observed_pixels: state.pattern === "painted" ? [...state.observed] : [],
});
const isEmpty = () => state.pattern === "painted" && !state.observed.size;
const countCells = () => state.image.height * state.image.width * state.scale ** 2;
const clearAttention = () => { state.attention = state.target = null; };

function complete() {
  if (!state.image) return;
  if (isEmpty()) {
    state.completion = null;
    announce("No pixels are observed yet: paint some");
    draw();
    return;
  }
  const { scale } = state;
  if (countCells() > MAX_INTERACTIVE_CELLS) announce("Computing: a photograph takes some seconds");
  send("image", "/api/images/complete", { ...contextRequest(), scale, samples: 3 }, (completion) => {
    if (isEmpty()) return; // all pixels were erased meanwhile
    state.completion = { ...completion, scale };
    if (state.pattern !== "painted") state.observed = new Set(completion.observed_pixels);
    const context = state.pattern === "coarse" ? "a coarse image" : `${state.observed.size} pixels`;
    announce(`Completed from ${context} by the model trained on ${TRAINED_ON[state.model]}`);
    draw();
    if (state.target) showAttention(...state.target);
  });
}

function showAttention(row, column) {
  const target = (state.target = [row, column]);
  send("attention", "/api/images/attention", { ...contextRequest(), row, column }, (attention) => {
    if (state.target !== target) return; // the image, its observed pixels or the model have changed since
    state.attention = attention;
    $("image-layer").max = attention.layers.length;
    $("image-layer").value = state.layer;
    announce(`Attention from row ${row}, column ${column}`);
    draw();
  });
}

function draw() {
  const { image, completion } = state;
  if (!image) return;
  const cursorOn = (id) => (document.activeElement === $(id) ? state.cursor : null);
  drawObserved($("image-observed"), image, state, cursorOn("image-observed"));
  drawPixels($("image-truth"), image);
  const count = `${state.observed.size} of ${image.height * image.width} pixels`;
  $("image-count").textContent = state.pattern === "coarse" ? "coarse" : count;
  $("image-size").textContent = completion ? `${image.width * completion.scale} × ${image.height * completion.scale}` : "";
  $("image-max-std").textContent = completion ? completion.max_std.toFixed(2) : "high";
  const cursor = cursorOn("image-mean");
  drawUrl($("image-mean"), completion?.mean, image, (context, size) => {
    if (state.attention && state.target) drawAttention(context, size, state, headColours());
    if (cursor) outline(context, size, cursor, colour("accent"));
  });
  drawUrl($("image-std"), completion?.std, image);
  const samples = completion?.samples ?? [];
  const figures = $("image-samples");
  while (figures.children.length > samples.length) figures.lastChild.remove();
  for (const [i, url] of samples.entries()) {
    if (!figures.children[i]) {
      const canvas = make("canvas", { role: "img", "aria-label": `Sample ${i + 1}` });
      figures.append(make("figure", {}, make("div", { class: "frame" }, canvas)));
    }
    drawUrl(figures.children[i].querySelector("canvas"), url, image);
  }
  updateLegend();
}

function updateLegend() {
  const { attention } = state;
  const layer = attention ? Math.min(state.layer, attention.layers.length) : 0;
  const heads = attention ? attention.layers[layer - 1] : [];
  const colours = headColours();
  $("image-layer-label").hidden = !heads.length;
  $("image-layer-out").textContent = attention ? `${layer}` : "";
  $("image-legend").replaceChildren(
    ...heads.map((_, h) => make("li", {}, dot(colours[h % colours.length]), `head ${h + 1}`)));
  if (heads.length) $("image-legend").append(make("li", {}, "the area of a sector is the attention weight"));
}

function pixelAt(canvas, event) {
  const box = canvas.getBoundingClientRect();
  const clip = (v, size) => Math.max(0, Math.min(size - 1, Math.floor(v)));
  return [
    clip(((event.clientY - box.top) / box.height) * state.image.height, state.image.height),
    clip(((event.clientX - box.left) / box.width) * state.image.width, state.image.width),
  ];
}

function paint([row, column], erase) {
  if (state.pattern === "coarse") state.observed = new Set();
  choose("painted");
  const { width, height } = state.image;
  const radius = Math.floor(Math.max(width, height) / 24);
  for (let r = Math.max(0, row - radius); r <= Math.min(height - 1, row + radius); r++) {
    for (let c = Math.max(0, column - radius); c <= Math.min(width - 1, column + radius); c++) {
      state.observed[erase ? "delete" : "add"](r * width + c);
    }
  }
  clearAttention();
  draw();
  if (countCells() <= MAX_INTERACTIVE_CELLS) complete();
}

const isErasing = () => document.querySelector('input[name="brush"]:checked').value === "erase";

function choose(value, name = "pattern") {
  state[name] = value;
  document.querySelector(`#image-form input[name="${name}"][value="${value}"]`).checked = true;
}

function listenToPointer() {
  const canvas = $("image-observed");
  let isPainting = false;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button || !state.image) return;
    isPainting = true;
    canvas.setPointerCapture(event.pointerId);
    state.cursor = pixelAt(canvas, event);
    paint(state.cursor, isErasing());
  });
  canvas.addEventListener("pointermove", (event) => isPainting && paint(pixelAt(canvas, event), isErasing()));
  const end = () => {
    if (isPainting) complete();
    isPainting = false;
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  $("image-mean").addEventListener("click", (event) => {
    if (!state.completion) return;
    state.cursor = pixelAt($("image-mean"), event);
    showAttention(...state.cursor);
    draw();
  });
  for (const id of ["image-observed", "image-mean"]) {
    $(id).addEventListener("keydown", (event) => onKey(id, event));
    $(id).addEventListener("focus", draw);
    $(id).addEventListener("blur", draw);
  }
}

function onKey(id, event) {
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  const { height, width } = state.image;
  const [row, column] = state.cursor;
  if (step) {
    state.cursor = [(row + step[0] + height) % height, (column + step[1] + width) % width];
    announce(`Row ${state.cursor[0]}, column ${state.cursor[1]}`);
    draw();
  } else if (event.key === " " || event.key === "Enter") {
    if (id === "image-observed") {
      paint(state.cursor, state.observed.has(row * width + column));
      complete();
    } else if (state.completion) showAttention(row, column);
  } else return;
  event.preventDefault();
}

function load({ image, note, model }) {
  Object.assign(state, { image, completion: null, cursor: [0, 0], observed: new Set() });
  clearAttention();
  if (state.pattern === "painted") choose("few");
  const isLarge = Math.max(image.width, image.height) > MAX_DIGITS_SIDE;
  const digits = document.querySelector('#image-form input[value="digits"]');
  digits.disabled = isLarge;
  digits.parentElement.title = isLarge ? `at most ${MAX_DIGITS_SIDE} × ${MAX_DIGITS_SIDE} pixels` : "";
  choose(model === "digits" && state.chosenModel ? state.chosenModel : model, "model"); // a photograph is no digit
  $("image-note").textContent = note;
  draw();
  complete();
}

function listExamples(examples) {
  for (const [i, example] of examples.entries()) {
    const thumbnail = make("canvas", { "aria-hidden": "true" });
    drawPixels(thumbnail, example.image);
    const input = make("input", {
      type: "radio", name: "image", "aria-label": example.title, checked: i === 3, onchange: () => load(example),
    });
    $("image-choices").append(make("label", { title: example.title }, input, thumbnail));
  }
  load(examples[3]);
}

function readFile(file) {
  if (file.size > 8e6) return announce("The image is larger than 8 MB; downsample it first", true);
  const type = file.type || "image/jpeg"; // if the system does not know it, the server finds out
  if (!["image/png", "image/jpeg"].includes(type)) return announce(`${file.name} is not a PNG or JPEG`, true);
  send("read", "/api/images/read", file, (response) => {
    for (const input of document.querySelectorAll('input[name="image"]')) input.checked = false;
    choose(1, "scale");
    load(response);
  }, { type });
}

export function startImages() {
  send("examples", "/api/images", undefined, listExamples);
  listenToPointer();
  const form = $("image-form");
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", ({ target: { name, value } }) => {
    if (name === "pattern") {
      if (state.pattern === "coarse") state.observed = new Set();
      state.pattern = value;
      clearAttention();
    } else if (name === "scale") state.scale = Number(value);
    else if (name === "model") {
      state.model = state.chosenModel = value;
      clearAttention();
    } else return;
    complete();
  });
  $("image-layer").addEventListener("input", () => {
    state.layer = Number($("image-layer").value);
    draw();
  });
  $("image-resample").addEventListener("click", () => {
    state.seed += 1;
    choose("few");
    complete();
  });
  $("image-clear").addEventListener("click", () => {
    state.observed = new Set();
    clearAttention();
    choose("painted");
    complete();
  });
  onFile($("images"), $("image-file"), readFile);
  onTheme(draw);
  return { onShow: draw };
}
