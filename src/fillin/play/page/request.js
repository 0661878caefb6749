// Requests to the server: at most one in flight. Of each kind only the newest waits. A response is stale if a newer
// request of its kind waits; it is drawn only if nothing was drawn for a while, or a slow machine would draw nothing.
// A tool that is hidden aborts its request, so that no table delays a drag, and sends it again when it is shown again.
import { announce } from "./dom.js";

const STALE_AFTER = 80; // milliseconds
const waiting = new Map(); // kind → request to send next
const lastDrawn = new Map(); // kind → time of the last drawing
const suspended = new Map(); // tool → requests it waited for when it was hidden
let tool = "";
let inFlight = null;

/** Statistics for tests and benchmarks: milliseconds from request to drawing (newest last), requests sent. */
export const statistics = { timings: [], sent: 0, isIdle: () => !inFlight && !waiting.size };

/** Send a request; `draw(response)` is called unless a newer request of the same kind waits. */
export function send(kind, path, body, draw, options = {}) {
  waiting.set(kind, { kind, path, body, draw, options, created: performance.now() });
  sendNext();
}

/** Show the tool `name`: suspend the requests of the previous tool and resume those of this one. */
export function switchTool(name) {
  if (name === tool) return;
  const pending = [...(inFlight ? [inFlight] : []), ...waiting.values()];
  suspended.set(tool, [...new Map(pending.map((request) => [request.kind, request])).values()]); // newest of each kind
  waiting.clear();
  inFlight?.control.abort();
  tool = name;
  for (const request of suspended.get(name) ?? []) waiting.set(request.kind, request);
  suspended.delete(name);
  sendNext();
}

async function sendNext() {
  if (inFlight || !waiting.size) return;
  const [kind, request] = waiting.entries().next().value;
  waiting.delete(kind);
  inFlight = request;
  request.control = new AbortController();
  try {
    const response = await fetchResponse(request.path, request.body, { ...request.options, signal: request.control.signal });
    if (!waiting.has(kind) || performance.now() - (lastDrawn.get(kind) ?? 0) > STALE_AFTER) {
      request.draw(response);
      lastDrawn.set(kind, performance.now());
      statistics.timings.push({ kind, milliseconds: performance.now() - request.created });
      if (statistics.timings.length > 500) statistics.timings.shift();
    }
  } catch (error) {
    if (request.control.signal.aborted) await new Promise((resolve) => setTimeout(resolve, 0)); // until it is off the wire
    else {
      announce(error.message, true);
      request.options.onError?.(error);
    }
  } finally {
    inFlight = null;
    sendNext();
  }
}

async function fetchResponse(path, body, { type = "application/json", text = false, signal }) {
  const options = body === undefined ? { signal } : {
    signal,
    method: "POST",
    headers: { "Content-Type": type },
    body: type === "application/json" ? JSON.stringify(body) : body,
  };
  let response;
  statistics.sent += 1;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The server does not respond: is fillin play still running?");
  }
  if (response.status === 503) {
    await new Promise((resolve) => setTimeout(resolve, 1000 * Number(response.headers.get("Retry-After") ?? 1)));
    return fetchResponse(path, body, { type, text, signal });
  }
  if (!response.ok) throw new Error((await response.json().catch(() => ({}))).detail ?? `Error ${response.status}`);
  return text ? response.text() : response.json();
}
