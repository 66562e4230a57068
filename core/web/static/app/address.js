// Keeps in the address what is shown: a view, its parameters, and the details at the side. The reader's choices are kept
// nowhere else, so a link contains all of them, and Back restores the previous ones.

const FORM = /^#\/([a-z-]*)\??(.*)$/;

/** Emits `change` whenever the address has changed, by a link, by Back or by `set`. */
class Address extends EventTarget {
  view = "";
  parameters = new URLSearchParams();

  constructor() {
    super();
    this.#read();
    window.addEventListener("hashchange", () => {
      this.#read();
      this.dispatchEvent(new Event("change"));
    });
  }

  /** Returns the value of a parameter; empty: it is not given. */
  get(name) {
    return this.parameters.get(name) ?? "";
  }

  /** Returns the address of a view. Empty values are left out; the chosen partition is included. */
  href(view, parameters = {}) {
    const partition = this.get("partition");
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries({ partition, ...parameters })) if (value) query.set(name, value);
    const text = query.toString();
    return `#/${view}${text ? `?${text}` : ""}`;
  }

  /** Go to another view, so that Back leads here. */
  go(view, parameters = {}) {
    location.hash = this.href(view, parameters);
  }

  /** Change parameters of this view; empty ones are removed. `replace`: Back does not lead to the address before, as while
      typing. */
  set(changes, { replace = false } = {}) {
    const wanted = this.href(this.view, { ...Object.fromEntries(this.parameters), ...changes });
    if (wanted === (location.hash || "#/")) return;
    if (replace) history.replaceState(null, "", wanted);
    else history.pushState(null, "", wanted);
    this.#read();
    this.dispatchEvent(new Event("change"));
  }

  #read() {
    const [, view = "", query = ""] = FORM.exec(location.hash) ?? [];
    this.view = view;
    this.parameters = new URLSearchParams(query);
  }
}

export const address = new Address();
