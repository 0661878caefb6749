// CSV input and output of curves, and the units in which the models were trained.
const MAX_POINTS = 200;

/** Parse x and y of each line. A first line without two numbers is a header. */
export function parse(text) {
  const lines = text.split(/\r?\n|\r/).map((line) => line.trim()).filter((line) => line && !line.startsWith("#"));
  if (!lines.length) throw new Error("There are no data: paste two columns, x and y");
  const separator = ["\t", ";", ","].find((character) => lines[lines.length - 1].includes(character)) ?? /\s+/;
  const number = (cell) => (cell.trim() === "" ? NaN : Number(cell.trim()));
  const points = [];
  for (const [i, line] of lines.entries()) {
    const cells = line.split(separator).slice(0, 2);
    const pair = cells.map(number);
    if (pair.length === 2 && pair.every(Number.isFinite)) points.push(pair);
    else if (i && cells.every((cell) => cell.trim() !== "")) {
      throw new Error(`Line ${i + 1}, "${line.slice(0, 40)}", is not two numbers`);
    }
  }
  if (!points.length) throw new Error("No line contains two numbers, x and y");
  return { points: points.slice(0, MAX_POINTS), omitted: Math.max(0, points.length - MAX_POINTS) };
}

/** Units in which x lies in −2 … 2 and y has mean 0 and standard deviation ½, and the ranges of the plot. */
export function unitsOf(points) {
  const [xs, ys] = [0, 1].map((i) => points.map((point) => point[i]));
  const [low, high] = [Math.min(...xs), Math.max(...xs)];
  const mean = ys.reduce((a, b) => a + b, 0) / ys.length;
  const std = Math.sqrt(ys.reduce((a, y) => a + (y - mean) ** 2, 0) / ys.length);
  const units = { x0: (low + high) / 2, x1: (high - low) / 4 || 1, y0: mean, y1: 2 * std || Math.abs(mean) || 1 };
  const { x0, x1, y0, y1 } = units;
  const extent = Math.max(2.2 * y1, ...ys.map((y) => 1.3 * Math.abs(y - y0)));
  return { units, window: [x0 - 2.5 * x1, x0 + 2.5 * x1], range: [y0 - extent, y0 + extent] };
}

/** The prediction as CSV. */
export function toCsv(prediction) {
  const names = ["x", "mean", "low50", "high50", "low95", "high95"];
  const columns = [...names.map((name) => prediction[name]), ...prediction.samples];
  const header = [...names, ...prediction.samples.map((_, i) => `sample${i + 1}`)];
  const rows = prediction.x.map((_, i) => columns.map((column) => column[i]).join(","));
  return [header.join(","), ...rows].join("\n") + "\n";
}
