// One request in flight, ever. Of each kind the newest waits and those before it are dropped. An answer is stale where
// a newer one of its kind waits: it is dropped too, unless nothing was drawn for a while, or a slow machine would show
// nothing at all.
import { say } from "./dom.js";

const waiting = new Map(); // kind → what is to be asked next
const drawn = new Map(); // kind → when it was drawn last
const PATIENCE = 80; // milliseconds
let busy = false;
export const timings = []; // milliseconds from asking to drawn, newest last

/** Ask; `draw(answer)` is called unless something newer of the same kind was asked meanwhile. */
export function ask(kind, path, body, draw, options = {}) {
  waiting.set(kind, { kind, path, body, draw, options, asked: performance.now() });
  next();
}

async function next() {
  if (busy || !waiting.size) return;
  const [kind, one] = waiting.entries().next().value;
  waiting.delete(kind);
  busy = true;
  try {
    const answer = await send(one.path, one.body, one.options);
    if (!waiting.has(kind) || performance.now() - (drawn.get(kind) ?? 0) > PATIENCE) {
      one.draw(answer);
      drawn.set(kind, performance.now());
      timings.push({ kind, milliseconds: performance.now() - one.asked });
      if (timings.length > 500) timings.shift();
    }
  } catch (error) {
    say(error.message, true);
    one.options.failed?.(error);
  } finally {
    busy = false;
    next();
  }
}

async function send(path, body, { type = "application/json", text = false } = {}) {
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "Content-Type": type },
    body: type === "application/json" ? JSON.stringify(body) : body,
  };
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer: is fillin play still running?");
  }
  if (answer.status === 503) {
    await new Promise((wait) => setTimeout(wait, 1000 * Number(answer.headers.get("Retry-After") ?? 1)));
    return send(path, body, { type, text });
  }
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).detail ?? `Error ${answer.status}`);
  return text ? answer.text() : answer.json();
}
