// Pictures on canvases: what is known, what is told, and what heads look at.
const LARGE = 320; // pixels of a canvas along the longer side, at least

function sized(canvas, { width, height }) {
  const size = Math.max(1, Math.ceil(LARGE / Math.max(width, height)));
  if (canvas.width !== width * size || canvas.height !== height * size) {
    [canvas.width, canvas.height] = [width * size, height * size];
  }
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  return { context, size };
}

const rgb = ({ pixels, channels }, i) =>
  channels === 1 ? [pixels[i], pixels[i], pixels[i]] : pixels.slice(3 * i, 3 * i + 3);

export function paintPixels(canvas, picture) {
  const { context, size } = sized(canvas, picture);
  for (let i = 0; i < picture.height * picture.width; i++) {
    context.fillStyle = `rgb(${rgb(picture, i).join()})`;
    context.fillRect((i % picture.width) * size, Math.floor(i / picture.width) * size, size, size);
  }
}

/** Known pixels on a ground that no picture has. */
export function paintMask(canvas, picture, { painted, told, pattern }, cursor) {
  const { context, size } = sized(canvas, picture);
  if (pattern === "coarse") {
    if (told) paintUrl(canvas, told.known, picture);
    return;
  }
  context.fillStyle = "#736b99";
  context.fillRect(0, 0, canvas.width, canvas.height);
  for (const i of painted) {
    context.fillStyle = `rgb(${rgb(picture, i).join()})`;
    context.fillRect((i % picture.width) * size, Math.floor(i / picture.width) * size, size, size);
  }
  if (cursor) {
    context.strokeStyle = "#ffffff";
    context.lineWidth = Math.max(2, size / 10);
    context.strokeRect(cursor[1] * size, cursor[0] * size, size, size);
  }
}

const loaded = new Map(); // the last pictures, so that drawing again does not flicker

/** A picture by its data URL, as large as the others; `over` draws upon it. */
export async function paintUrl(canvas, url, picture, over) {
  const { context, size } = sized(canvas, picture);
  canvas.fillinUrl = url;
  if (!url) {
    context.clearRect(0, 0, canvas.width, canvas.height);
    return;
  }
  let image = loaded.get(url);
  if (!image) {
    image = new Image();
    image.src = url;
    await image.decode();
    loaded.set(url, image);
    if (loaded.size > 24) loaded.delete(loaded.keys().next().value);
    if (canvas.fillinUrl !== url) return; // a newer one came meanwhile
  }
  context.imageSmoothingEnabled = false;
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  over?.(context, size);
}

/** On known points a slice for each head, a colour a head, its area the weight; a cross where it is looked from. */
export function marks(context, size, { looked, layer, pixel }, colours) {
  const shown = looked.layers[Math.min(layer, looked.layers.length) - 1];
  const turn = (2 * Math.PI) / shown.length;
  context.fillStyle = "rgba(0, 0, 0, .5)";
  context.fillRect(0, 0, context.canvas.width, context.canvas.height);
  for (const [h, weights] of shown.entries()) {
    context.fillStyle = colours[h % colours.length];
    const most = Math.max(...weights, 1e-9); // each head by itself, or one that looks at one pixel hides the others
    for (const [j, weight] of weights.entries()) {
      const [y, x] = looked.points[j].map((v) => (v + 0.5) * size);
      context.beginPath();
      context.moveTo(x, y);
      context.arc(x, y, Math.max(0.75 * size, 9) * Math.sqrt(weight / most), h * turn, (h + 1) * turn);
      context.fill();
    }
  }
  context.globalAlpha = 1;
  const [y, x, r] = [(pixel[0] + 0.5) * size, (pixel[1] + 0.5) * size, Math.max(5, 0.45 * size)];
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
