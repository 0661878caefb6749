// Images on canvases: observed pixels, predictions and attention weights.
const MIN_SIDE = 320; // canvas pixels along the longer side

function sizeCanvas(canvas, { width, height }) {
  const size = Math.max(1, Math.ceil(MIN_SIDE / Math.max(width, height)));
  if (canvas.width !== width * size || canvas.height !== height * size) {
    [canvas.width, canvas.height] = [width * size, height * size];
  }
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  return { context, size };
}

function fillPixel(context, size, { pixels, channels, width }, i) {
  const rgb = channels === 1 ? [pixels[i], pixels[i], pixels[i]] : pixels.slice(3 * i, 3 * i + 3);
  context.fillStyle = `rgb(${rgb.join()})`;
  context.fillRect((i % width) * size, Math.floor(i / width) * size, size, size);
}

export function drawPixels(canvas, image) {
  const { context, size } = sizeCanvas(canvas, image);
  for (let i = 0; i < image.height * image.width; i++) fillPixel(context, size, image, i);
}

/** Outline a pixel. */
export function outline(context, size, [row, column], stroke) {
  context.strokeStyle = stroke;
  context.lineWidth = Math.max(2, size / 10);
  context.strokeRect(column * size, row * size, size, size);
}

/** Draw the observed pixels on a background colour that images rarely have. */
export function drawObserved(canvas, image, { observed, completion, pattern }, cursor) {
  const { context, size } = sizeCanvas(canvas, image);
  if (pattern === "coarse") {
    if (completion) drawUrl(canvas, completion.observed, image);
    return;
  }
  context.fillStyle = "#736b99";
  context.fillRect(0, 0, canvas.width, canvas.height);
  for (const i of observed) fillPixel(context, size, image, i);
  if (cursor) outline(context, size, cursor, "#ffffff");
}

const loaded = new Map(); // recent images, so that redrawing does not flicker

/** Draw an image from its data URL at the size of the others; `overlay` draws on top of it. */
export async function drawUrl(canvas, url, image, overlay) {
  const { context, size } = sizeCanvas(canvas, image);
  canvas.fillinUrl = url;
  if (!url) {
    context.clearRect(0, 0, canvas.width, canvas.height);
    return;
  }
  let element = loaded.get(url);
  if (!element) {
    element = new Image();
    element.src = url;
    await element.decode();
    loaded.set(url, element);
    if (loaded.size > 24) loaded.delete(loaded.keys().next().value);
    if (canvas.fillinUrl !== url) return; // a newer image was requested meanwhile
  }
  context.imageSmoothingEnabled = false;
  context.drawImage(element, 0, 0, canvas.width, canvas.height);
  overlay?.(context, size);
}

/** Draw a sector per head on each context point, its area the weight, and a cross at the target pixel. */
export function drawAttention(context, size, { attention, layer, target }, colours) {
  const heads = attention.layers[Math.min(layer, attention.layers.length) - 1];
  const angle = (2 * Math.PI) / heads.length;
  context.fillStyle = "rgba(0, 0, 0, .5)";
  context.fillRect(0, 0, context.canvas.width, context.canvas.height);
  for (const [h, weights] of heads.entries()) {
    context.fillStyle = colours[h % colours.length];
    const largest = Math.max(...weights, 1e-9); // per head, or one that attends to a single pixel hides the others
    for (const [j, weight] of weights.entries()) {
      const [y, x] = attention.points[j].map((v) => (v + 0.5) * size);
      context.beginPath();
      context.moveTo(x, y);
      context.arc(x, y, Math.max(0.75 * size, 9) * Math.sqrt(weight / largest), h * angle, (h + 1) * angle);
      context.fill();
    }
  }
  context.globalAlpha = 1;
  const [y, x, r] = [(target[0] + 0.5) * size, (target[1] + 0.5) * size, Math.max(5, 0.45 * size)];
  for (const [width, stroke] of [[6, "#000000"], [3, "#ffffff"]]) {
    context.strokeStyle = stroke;
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(x - r, y - r);
    context.lineTo(x + r, y + r);
    context.moveTo(x + r, y - r);
    context.lineTo(x - r, y + r);
    context.stroke();
  }
}
