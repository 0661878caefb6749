// Helpers of the page that every tool uses.
export const $ = (id) => document.getElementById(id);

/** Create an element with attributes and children. Text is inserted as text, never as HTML. */
export function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "rect", "line", "circle", "path"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== undefined));
  return node;
}

/** Show a message in the status line, which screen readers announce. */
export function announce(text, isError = false) {
  const status = $("status");
  status.textContent = text;
  status.classList.toggle("error", isError);
}

export function download(name, content, type = "text/plain") {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = make("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** Call `use(file)` for a file that is dropped on the node or selected in the input. */
export function onFile(node, input, use) {
  node.addEventListener("dragover", (event) => {
    event.preventDefault();
    node.classList.add("over");
  });
  node.addEventListener("dragleave", () => node.classList.remove("over"));
  node.addEventListener("drop", (event) => {
    event.preventDefault();
    node.classList.remove("over");
    if (event.dataTransfer.files.length) use(event.dataTransfer.files[0]);
  });
  input.addEventListener("change", () => {
    if (input.files.length) use(input.files[0]);
    input.value = "";
  });
}

/** Clear a canvas and size it in device pixels; its context draws in CSS pixels. */
export function fitCanvas(canvas) {
  const { width, height } = canvas.getBoundingClientRect();
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

export const bar = (fraction, kind = "mark") =>
  make("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    make("rect", { class: "ground", width: 100, height: 10, rx: 2 }),
    make("rect", { class: kind, width: Math.max(0.5, 100 * Math.min(1, fraction)), height: 10, rx: 2 }));

/** Colour mark of a legend entry. */
export const swatch = (content) => make("svg", { viewBox: "0 0 22 12", "aria-hidden": "true" }, content);
export const dot = (fill) => swatch(make("circle", { cx: 11, cy: 6, r: 5.5, fill }));
