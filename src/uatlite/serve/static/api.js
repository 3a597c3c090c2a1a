// Requests to this service, and to no other.

const MOST_TRIES = 6;
let token = sessionStorage.getItem("token");
let onLocked = () => {};

export class Refused extends Error {
  constructor(status, error) {
    const fields = (error.fields ?? []).map(({ field, message }) => `${field}: ${message}`);
    super(fields.length ? fields.join("; ") : error.message);
    this.status = status;
  }
}

export function useToken(given) {
  token = given;
  sessionStorage.setItem("token", given);
}

export function whenLocked(action) {
  onLocked = action;
}

export const get = (path) => request(path, { method: "GET" });

export const post = (path, body, signal) =>
  request(path, {
    method: "POST",
    signal,
    body: JSON.stringify(body),
    headers: { "Content-Type": "application/json" },
  });

async function request(path, options) {
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  for (let tries = 1; ; tries += 1) {
    const response = await fetch(path, { ...options, headers, credentials: "omit", cache: "no-store" });
    if (response.ok) return response.json();
    const body = await response.json().catch(() => ({ error: { message: `The service answered ${response.status}.` } }));
    if (response.status === 401) onLocked();
    if (response.status !== 503 || tries === MOST_TRIES) throw new Refused(response.status, body.error);
    await pause(1000 * Number(response.headers.get("Retry-After") ?? 1), options.signal);
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}
