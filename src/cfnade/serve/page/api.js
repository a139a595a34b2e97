// Asks the service. Every failure becomes one ServiceError with words for people.

import { keep, recall } from "./storage.js";

export class ServiceError extends Error {
  constructor(code, message, fix) {
    super(message);
    this.code = code;
    this.fix = fix;
  }
}

const KEY = "cfnade-api-key";

export function useKey(key) {
  keep("sessionStorage", KEY, key);
}

async function call(path, options = {}) {
  const headers = { accept: "application/json", ...options.headers };
  const key = recall("sessionStorage", KEY);
  if (key) headers.authorization = `Bearer ${key}`;
  let response, content;
  try {
    response = await fetch(path, { ...options, headers });
    content = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (!response) {
      throw new ServiceError("unreachable", "The service does not answer.", "Is it still running?");
    }
    throw new ServiceError("no_json", `The service answered ${response.status}.`, "Try again.");
  }
  if (!response.ok) {
    const { code = "error", message = response.statusText, fix = "" } = content.error ?? {};
    throw new ServiceError(code, message, fix);
  }
  return content;
}

function post(path, body, signal) {
  const headers = { "content-type": "application/json" };
  return call(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

// The lists for one person or several, in one request.
export async function recommend(people, { dials, only, n }, signal) {
  const requests = people.map((evidence) => ({ ...evidence, dials, only, n, explain: true, spread: true }));
  if (requests.length === 1) return [await post("v1/recommend", requests[0], signal)];
  return (await post("v1/recommend:batch", { requests }, signal)).answers;
}

export const explain = (evidence, item) => post("v1/explain", { ...evidence, item });

export const similar = (item, n, exclude) => post("v1/similar", { item, n, exclude });

export const model = () => call("v1/model");

export const search = (words, n, signal) =>
  call(`v1/items?${new URLSearchParams({ q: words, n })}`, { signal });

export const lookUp = (items) => post("v1/items:lookup", { items });
