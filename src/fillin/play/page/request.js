// One request in flight, ever. Of each kind the newest waits and those before it are dropped. An answer is stale where
// a newer one of its kind waits: it is dropped too, unless nothing was drawn for a while, or a slow machine would show
// nothing at all. A tool that is left drops what it waits for, so that no table holds up a drag, and asks again when it
// is shown again.
import { say } from "./dom.js";

const waiting = new Map(); // kind → what is to be asked next
const drawn = new Map(); // kind → when it was drawn last
const PATIENCE = 80; // milliseconds
const aside = new Map(); // tool → what it waited for when it was left
let tool = "";
let flying = null; // the one request that is under way
export const timings = []; // milliseconds from asking to drawn, newest last

/** Ask; `draw(answer)` is called unless something newer of the same kind was asked meanwhile. */
export function ask(kind, path, body, draw, options = {}) {
  waiting.set(kind, { kind, path, body, draw, options, asked: performance.now() });
  next();
}

/** The tool `name` is shown now: it alone asks. */
export function turnTo(name) {
  if (name === tool) return;
  const left = [...(flying ? [flying] : []), ...waiting.values()];
  aside.set(tool, [...new Map(left.map((one) => [one.kind, one])).values()]); // of each kind the newest
  waiting.clear();
  flying?.control.abort();
  tool = name;
  for (const one of aside.get(name) ?? []) waiting.set(one.kind, one);
  aside.delete(name);
  next();
}

async function next() {
  if (flying || !waiting.size) return;
  const [kind, one] = waiting.entries().next().value;
  waiting.delete(kind);
  flying = one;
  one.control = new AbortController();
  try {
    const answer = await send(one.path, one.body, { ...one.options, signal: one.control.signal });
    if (!waiting.has(kind) || performance.now() - (drawn.get(kind) ?? 0) > PATIENCE) {
      one.draw(answer);
      drawn.set(kind, performance.now());
      timings.push({ kind, milliseconds: performance.now() - one.asked });
      if (timings.length > 500) timings.shift();
    }
  } catch (error) {
    if (one.control.signal.aborted) await new Promise((turn) => setTimeout(turn, 0)); // until it is off the wire
    else {
      say(error.message, true);
      one.options.failed?.(error);
    }
  } finally {
    flying = null;
    next();
  }
}

async function send(path, body, { type = "application/json", text = false, signal }) {
  const options = body === undefined ? { signal } : {
    signal,
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
    return send(path, body, { type, text, signal });
  }
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).detail ?? `Error ${answer.status}`);
  return text ? answer.text() : answer.json();
}
