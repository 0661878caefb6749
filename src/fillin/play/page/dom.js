// Small things that every tool needs of the page.
export const $ = (id) => document.getElementById(id);

/** An element with attributes and children; text is text, never HTML. */
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

/** Say it below the page, and to who listens. */
export function say(text, bad = false) {
  const status = $("status");
  status.textContent = text;
  status.classList.toggle("bad", bad);
}

export function download(name, content, type = "text/plain") {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = make("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** A file dropped on the node, or chosen by the input. */
export function onFile(node, input, take) {
  node.addEventListener("dragover", (event) => {
    event.preventDefault();
    node.classList.add("over");
  });
  node.addEventListener("dragleave", () => node.classList.remove("over"));
  node.addEventListener("drop", (event) => {
    event.preventDefault();
    node.classList.remove("over");
    if (event.dataTransfer.files.length) take(event.dataTransfer.files[0]);
  });
  input.addEventListener("change", () => {
    if (input.files.length) take(input.files[0]);
    input.value = "";
  });
}

/** A canvas as large as it is shown, in the screen's own pixels; its context draws in CSS pixels. */
export function fitted(canvas) {
  const { width, height } = canvas.getBoundingClientRect();
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

export const bar = (share, kind = "mark") =>
  make("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    make("rect", { class: "ground", width: 100, height: 10, rx: 2 }),
    make("rect", { class: kind, width: Math.max(0.5, 100 * Math.min(1, share)), height: 10, rx: 2 }));
