// Images: which pixels are known is painted, the rest is told from them.
import { $, make, say, onFile } from "./dom.js";
import { ask } from "./request.js";
import { heads, onTheme, colour } from "./theme.js";
import { paintMask, paintPixels, paintUrl, marks } from "./imageplot.js";

const WIDEST = 32; // pixels along a side that the network of digits takes
const state = {
  picture: null, model: "digits", wanted: null, // the model that was chosen by hand
  pattern: "few", painted: new Set(), seed: 0, scale: 4, told: null, pixel: null, looked: null, layer: 8, cursor: [0, 0],
};
const part = () => ({
  picture: state.picture, model: state.model, pattern: state.pattern, seed: state.seed,
  painted: state.pattern === "painted" ? [...state.painted] : [],
});

function complete() {
  if (!state.picture) return;
  if (state.pattern === "painted" && !state.painted.size) {
    state.told = null;
    say("No pixel is known yet: paint some");
    draw();
    return;
  }
  const { scale } = state;
  const cells = state.picture.height * state.picture.width * scale ** 2;
  if (cells > 4000) say("Computing: a photograph takes some seconds");
  ask("image", "/api/images/complete", { ...part(), scale, samples: 3 }, (told) => {
    state.told = { ...told, scale };
    if (state.pattern !== "painted") state.painted = new Set(told.painted);
    const from = state.pattern === "coarse" ? "a coarse picture" : `${state.painted.size} pixels`;
    say(`Completed from ${from} by a network that knows ${state.model === "digits" ? "digits" : "surfaces"}`);
    draw();
    if (state.pixel) look(...state.pixel);
  });
}

function look(row, column) {
  const pixel = (state.pixel = [row, column]);
  ask("heads", "/api/images/attention", { ...part(), row, column }, (told) => {
    if (state.pixel !== pixel) return; // another picture, part or network has been chosen since
    state.looked = told;
    $("image-layer").max = told.layers.length;
    $("image-layer").value = state.layer;
    say(`Where each head looks from row ${row}, column ${column}`);
    draw();
  });
}

function draw() {
  const { picture, told } = state;
  if (!picture) return;
  paintMask($("image-known"), picture, state, document.activeElement === $("image-known") ? state.cursor : null);
  paintPixels($("image-truth"), picture);
  const all = picture.height * picture.width;
  $("image-count").textContent = state.pattern === "coarse" ? "coarse" : `${state.painted.size} of ${all} pixels`;
  $("image-size").textContent = told ? `${picture.width * told.scale} × ${picture.height * told.scale}` : "";
  $("image-largest").textContent = told ? `is ${told.largest.toFixed(2)}` : "is most";
  const cursor = document.activeElement === $("image-mean") ? state.cursor : null;
  paintUrl($("image-mean"), told?.mean, picture, (context, size) => {
    if (state.looked && state.pixel) marks(context, size, state, heads());
    if (cursor) outline(context, size, cursor);
  });
  paintUrl($("image-std"), told?.deviation, picture);
  const samples = told?.samples ?? [];
  const boxes = $("image-samples");
  while (boxes.children.length > samples.length) boxes.lastChild.remove();
  for (const [i, url] of samples.entries()) {
    if (!boxes.children[i]) {
      const canvas = make("canvas", { role: "img", "aria-label": `Sample ${i + 1}` });
      boxes.append(make("figure", {}, make("div", { class: "frame" }, canvas)));
    }
    paintUrl(boxes.children[i].querySelector("canvas"), url, picture);
  }
  legend();
}

function outline(context, size, [row, column]) {
  context.strokeStyle = colour("accent");
  context.lineWidth = Math.max(2, size / 10);
  context.strokeRect(column * size, row * size, size, size);
}

function legend() {
  const shown = state.looked ? state.looked.layers[Math.min(state.layer, state.looked.layers.length) - 1] : [];
  const colours = heads();
  $("image-layer-label").hidden = !shown.length;
  $("image-layer-out").textContent = state.looked ? `${Math.min(state.layer, state.looked.layers.length)}` : "";
  $("image-legend").replaceChildren(...shown.map((_, h) => make("li", {},
    make("svg", { viewBox: "0 0 22 12", "aria-hidden": "true" },
      make("circle", { cx: 11, cy: 6, r: 5.5, fill: colours[h % colours.length] })), `head ${h + 1}`)));
  if (shown.length) $("image-legend").append(make("li", {}, "the larger a slice, the more the head looks there"));
}

function pixelAt(canvas, event) {
  const box = canvas.getBoundingClientRect();
  const clip = (v, most) => Math.max(0, Math.min(most - 1, Math.floor(v)));
  return [
    clip(((event.clientY - box.top) / box.height) * state.picture.height, state.picture.height),
    clip(((event.clientX - box.left) / box.width) * state.picture.width, state.picture.width),
  ];
}

function paint([row, column], erase) {
  if (state.pattern === "coarse") state.painted = new Set();
  choose("painted");
  const { width, height } = state.picture;
  const reach = Math.floor(Math.max(width, height) / 24);
  for (let r = Math.max(0, row - reach); r <= Math.min(height - 1, row + reach); r++) {
    for (let c = Math.max(0, column - reach); c <= Math.min(width - 1, column + reach); c++) {
      state.painted[erase ? "delete" : "add"](r * width + c);
    }
  }
  state.looked = state.pixel = null;
  draw();
  if (width * height * state.scale ** 2 <= 4000) complete();
}

const erasing = () => document.querySelector('input[name="brush"]:checked').value === "erase";

function choose(value, name = "pattern") {
  state[name] = value;
  document.querySelector(`#image-form input[name="${name}"][value="${value}"]`).checked = true;
}

function brush() {
  const canvas = $("image-known");
  let painting = false;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button || !state.picture) return;
    painting = true;
    canvas.setPointerCapture(event.pointerId);
    state.cursor = pixelAt(canvas, event);
    paint(state.cursor, erasing());
  });
  canvas.addEventListener("pointermove", (event) => painting && paint(pixelAt(canvas, event), erasing()));
  const end = () => {
    if (painting) complete();
    painting = false;
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  $("image-mean").addEventListener("click", (event) => {
    if (!state.told) return;
    state.cursor = pixelAt($("image-mean"), event);
    look(...state.cursor);
    draw();
  });
  for (const id of ["image-known", "image-mean"]) {
    $(id).addEventListener("keydown", (event) => keys(id, event));
    $(id).addEventListener("focus", draw);
    $(id).addEventListener("blur", draw);
  }
}

function keys(id, event) {
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  const { height, width } = state.picture;
  const [row, column] = state.cursor;
  if (step) {
    state.cursor = [(row + step[0] + height) % height, (column + step[1] + width) % width];
    say(`Row ${state.cursor[0]}, column ${state.cursor[1]}`);
    draw();
  } else if (event.key === " " || event.key === "Enter") {
    if (id === "image-known") {
      paint(state.cursor, state.painted.has(row * width + column));
      complete();
    } else if (state.told) look(row, column);
  } else return;
  event.preventDefault();
}

function take({ picture, note, model }) {
  Object.assign(state, { picture, told: null, looked: null, pixel: null, cursor: [0, 0], painted: new Set() });
  if (state.pattern === "painted") choose("few");
  const large = Math.max(picture.width, picture.height) > WIDEST;
  const digits = document.querySelector('#image-form input[value="digits"]');
  digits.disabled = large;
  digits.parentElement.title = large ? `it takes at most ${WIDEST} × ${WIDEST} pixels` : "";
  choose(model === "digits" && state.wanted ? state.wanted : model, "model"); // a photograph is no digit
  $("image-note").textContent = note;
  draw();
  complete();
}

function choices(examples) {
  for (const [i, example] of examples.entries()) {
    const thumb = make("canvas", { "aria-hidden": "true" });
    paintPixels(thumb, example.picture);
    const input = make("input", {
      type: "radio", name: "picture", "aria-label": example.title, checked: i === 3, onchange: () => take(example),
    });
    $("image-choices").append(make("label", { title: example.title }, input, thumb));
  }
  take(examples[3]);
}

async function read(file) {
  if (file.size > 8e6) return say("The picture has more than 8 MB; make it smaller first", true);
  const type = file.type || "image/jpeg"; // where the system does not know, the server looks
  if (!["image/png", "image/jpeg"].includes(type)) return say(`${file.name} is no PNG or JPEG`, true);
  ask("read", "/api/images/read", file, (found) => {
    for (const input of document.querySelectorAll('input[name="picture"]')) input.checked = false;
    choose(1, "scale");
    take(found);
  }, { type });
}

export function startImages() {
  ask("examples", "/api/images", undefined, choices);
  brush();
  const form = $("image-form");
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", (event) => {
    if (event.target.name === "pattern") {
      if (state.pattern === "coarse") state.painted = new Set();
      Object.assign(state, { pattern: event.target.value, looked: null, pixel: null });
    } else if (event.target.name === "scale") state.scale = Number(event.target.value);
    else if (event.target.name === "model") {
      const model = event.target.value;
      Object.assign(state, { model, wanted: model, looked: null, pixel: null });
    } else return;
    complete();
  });
  $("image-layer").addEventListener("input", () => {
    state.layer = Number($("image-layer").value);
    draw();
  });
  $("image-again").addEventListener("click", () => {
    state.seed += 1;
    choose("few");
    complete();
  });
  $("image-none").addEventListener("click", () => {
    state.painted = new Set();
    state.looked = state.pixel = null;
    choose("painted");
    complete();
  });
  onFile($("images"), $("image-file"), read);
  onTheme(draw);
  return { shown: draw };
}
