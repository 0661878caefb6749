// CSV in and out, and units in which the models have learned.
const MOST = 200;

/** x and y of each line; what does not read as two numbers in the first line is a header. */
export function parse(text) {
  const lines = text.split(/\r?\n|\r/).map((line) => line.trim()).filter((line) => line && !line.startsWith("#"));
  if (!lines.length) throw new Error("There is nothing to read: paste two columns, x and y");
  const separator = ["\t", ";", ","].find((one) => lines[lines.length - 1].includes(one)) ?? /\s+/;
  const number = (cell) => (cell.trim() === "" ? NaN : Number(cell.trim()));
  const numbers = (line) => line.split(separator).slice(0, 2).map(number);
  const points = [];
  for (const [i, line] of lines.entries()) {
    const pair = numbers(line);
    if (pair.length === 2 && pair.every(Number.isFinite)) points.push(pair);
    else if (i && line.split(separator).slice(0, 2).every((cell) => cell.trim() !== "")) {
      throw new Error(`Line ${i + 1}, "${line.slice(0, 40)}", is not two numbers`);
    }
  }
  if (!points.length) throw new Error("No line has two numbers, x and y");
  return { points: points.slice(0, MOST), left: Math.max(0, points.length - MOST) };
}

/** x between −2 and 2, y of mean 0 and a deviation of one half; and what the plot shows. */
export function unitsOf(points) {
  const [xs, ys] = [0, 1].map((i) => points.map((point) => point[i]));
  const [low, high] = [Math.min(...xs), Math.max(...xs)];
  const mean = ys.reduce((a, b) => a + b, 0) / ys.length;
  const spread = Math.sqrt(ys.reduce((a, y) => a + (y - mean) ** 2, 0) / ys.length);
  const units = { x0: (low + high) / 2, x1: (high - low) / 4 || 1, y0: mean, y1: 2 * spread || Math.abs(mean) || 1 };
  const { x0, x1, y0, y1 } = units;
  const far = Math.max(2.2 * y1, ...ys.map((y) => 1.3 * Math.abs(y - y0)));
  return { units, window: [x0 - 2.5 * x1, x0 + 2.5 * x1], range: [y0 - far, y0 + far] };
}

/** What is shown, as CSV. */
export function listed({ told }) {
  const names = ["x", "mean", "low50", "high50", "low95", "high95"];
  const columns = names.map((name) => told[name]);
  const head = [...names, ...told.samples.map((_, i) => `sample${i + 1}`)];
  const rows = told.x.map((_, i) => [...columns, ...told.samples].map((column) => column[i]).join(","));
  return [head.join(","), ...rows].join("\n") + "\n";
}
