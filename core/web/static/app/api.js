// The REST interface of the core that served this page.

const BASE = "/ws/v1";
const TOKEN = "kornel.token";
const PATIENCE_MS = 15_000;
/** The time that the core works for each request besides that in Server-Timing: it reads the request, and writes the
    headers. */
const BESIDES_MS = 0.7;

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Emits `state` with `live`, `lost` (there is no answer), `refused` (401) or `denied` (403). */
class Api extends EventTarget {
  state = "wait";
  message = "";
  /** The standing of a core that stands by: { role, behind (s), leader }; null: the core leads. */
  standing = null;

  get token() {
    return sessionStorage.getItem(TOKEN) ?? "";
  }

  set token(value) {
    if (value) sessionStorage.setItem(TOKEN, value);
    else sessionStorage.removeItem(TOKEN);
    this.#become("wait", "");
  }

  #costs = new WeakMap();

  /** Returns the document at a path below /ws/v1. Throws ApiError; status 0: there was no answer. */
  async get(path, signal) {
    return (await this.page(path, signal)).document;
  }

  /** Does the same as `get` for a document with a tag. Returns the document in `known`, an earlier result, if nothing has
      changed since. */
  async again(path, signal, known) {
    const found = await this.page(path, signal, { tag: known?.path === path ? known.tag : "" });
    return found.unchanged ? known : { path, tag: found.tag, document: found.document };
  }

  /** Returns the answer to a call of kornel.v1 such as "ExplainService/WhatIf". Throws the same errors as `get`. */
  async call(name, request = {}, signal = null) {
    return (await this.page(`calls/${name}`, signal, { method: "POST", type: "application/json", body: JSON.stringify(request) })).document;
  }

  /** Sends a text, and returns the answer. Throws the same errors as `get`. */
  async send(path, type, body) {
    return (await this.page(path, null, { method: "POST", type, body })).document;
  }

  /** Returns how long the core worked for all requests with this signal, in ms. */
  costOf(signal) {
    return this.#costs.get(signal) ?? 0;
  }

  /** Returns the document, with what its headers say about pages: the number of items, and where the next page is. */
  async page(path, signal, { method = "GET", type = "", body = null, tag = "" } = {}) {
    const headers = { Accept: "application/json" };
    if (tag) headers["If-None-Match"] = tag;
    if (type) headers["Content-Type"] = type;
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    const signals = [AbortSignal.timeout(PATIENCE_MS), ...(signal ? [signal] : [])];
    let answer;
    let text;
    try {
      answer = await fetch(path.startsWith("/") ? path : `${BASE}/${path}`, {
        method,
        body,
        headers,
        signal: AbortSignal.any(signals),
        cache: "no-store",
      });
      text = await answer.text();
    } catch (error) {
      if (signal?.aborted) throw error;
      this.#become("lost", "The core does not answer");
      throw new ApiError(0, "The core does not answer. The page keeps trying.");
    }
    this.#note(answer.headers.get("Kornel-Standing"));
    const document = parsed(text);
    const worked = /core;dur=([\d.]+)/.exec(answer.headers.get("Server-Timing") ?? "");
    if (signal && worked) this.#costs.set(signal, this.costOf(signal) + Number(worked[1]) + BESIDES_MS);
    if (answer.status === 304) {
      this.#become("live", "");
      return { unchanged: true };
    }
    if (!answer.ok) {
      const message = document?.message ?? `status ${answer.status}`;
      // A reader who may not change something may still look at it.
      this.#become({ 401: "refused", 403: method === "GET" ? "denied" : "live" }[answer.status] ?? "live", message);
      throw new ApiError(answer.status, message);
    }
    this.#become("live", "");
    const next = /<[^>]*[?&]cursor=([^&>]*)[^>]*>; rel="next"/.exec(answer.headers.get("Link") ?? "");
    return {
      document,
      tag: answer.headers.get("ETag") ?? "",
      total: Number(answer.headers.get("X-Total-Count") ?? NaN),
      next: next ? decodeURIComponent(next[1]) : "",
    };
  }

  #note(header) {
    const found = /^(\w+); behind=([\d.]+)(?:; leader=(.+))?$/.exec(header ?? "");
    const before = this.standing;
    this.standing = found && { role: found[1], behind: Math.ceil(Number(found[2]) * 10) / 10, leader: found[3] ?? "" };
    if (JSON.stringify(before) !== JSON.stringify(this.standing)) this.dispatchEvent(new Event("state"));
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

/** Returns a name encoded twice, because this interface decodes names twice. */
export const twice = (name) => encodeURIComponent(encodeURIComponent(name));
