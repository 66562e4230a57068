// The REST interface of the core that served this page.

const BASE = "/ws/v1";
const TOKEN = "kornel.token";
const PATIENCE_MS = 15_000;

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Emits `state` with `live`, `lost` (nobody answers) `refused` (401) or `denied` (403). */
class Api extends EventTarget {
  state = "wait";
  message = "";

  get token() {
    return sessionStorage.getItem(TOKEN) ?? "";
  }

  set token(value) {
    if (value) sessionStorage.setItem(TOKEN, value);
    else sessionStorage.removeItem(TOKEN);
    this.#become("wait", "");
  }

  /** The document at a path below /ws/v1. Throws ApiError; status 0: nobody answered. */
  async get(path, signal) {
    return (await this.page(path, signal)).document;
  }

  /** The document and what its headers say of pages: how many items there are, and where the next page is. */
  async page(path, signal) {
    const headers = { Accept: "application/json" };
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    const signals = [AbortSignal.timeout(PATIENCE_MS), ...(signal ? [signal] : [])];
    let answer;
    let text;
    try {
      answer = await fetch(path.startsWith("/") ? path : `${BASE}/${path}`, {
        headers,
        signal: AbortSignal.any(signals),
        cache: "no-store",
      });
      text = await answer.text();
    } catch (error) {
      if (signal?.aborted) throw error;
      this.#become("lost", "The core does not answer");
      throw new ApiError(0, "The core does not answer. Trying again.");
    }
    const document = parsed(text);
    if (!answer.ok) {
      const message = document?.message ?? `status ${answer.status}`;
      this.#become({ 401: "refused", 403: "denied" }[answer.status] ?? "live", message);
      throw new ApiError(answer.status, message);
    }
    this.#become("live", "");
    const next = /<[^>]*[?&]cursor=([^&>]*)[^>]*>; rel="next"/.exec(answer.headers.get("Link") ?? "");
    return {
      document,
      total: Number(answer.headers.get("X-Total-Count") ?? NaN),
      next: next ? decodeURIComponent(next[1]) : "",
    };
  }

  #become(state, message) {
    if (state === this.state && message === this.message) return;
    this.state = state;
    this.message = message;
    this.dispatchEvent(new Event("state"));
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

export const api = new Api();

/** A name as the interface decodes it: twice (rest of the world: once). */
export const twice = (name) => encodeURIComponent(encodeURIComponent(name));
