// Browsers start no workers for pages that were opened as files. A hidden frame does the work of the search there.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #waiting = [];

    constructor(address) {
      super();
      this.#frame.hidden = true;
      this.#frame.srcdoc = "<!doctype html>";
      this.#frame.addEventListener("load", () => this.#start(new URL(address, document.baseURI).href), { once: true });
      document.body.append(this.#frame);
    }

    postMessage(data) {
      if (this.#waiting) this.#waiting.push(data);
      else this.#frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.#frame.remove();
    }

    async #start(address) {
      const inside = this.#frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = async (...addresses) => {
        for (const one of addresses) await this.#load(one);
      };
      await this.#load(address);
      const waiting = this.#waiting;
      this.#waiting = null;
      waiting.forEach((data) => this.postMessage(data));
    }

    #load(address) {
      return new Promise((done, failed) => {
        const script = this.#frame.contentDocument.createElement("script");
        script.src = address;
        script.onload = done;
        script.onerror = failed;
        this.#frame.contentDocument.head.append(script);
      });
    }
  };
}

// The search takes a hyphen for "without", and compares beginnings of words: all parts of a hyphenated word are looked for,
// and any other word without its ending. An option is looked for without its hyphens, since the search fails on two.
const QUERY = 2;
const { postMessage } = Worker.prototype;
const plain = (whole) => {
  const word = whole.replace(/^-+/, "");
  const parts = word.split("-").filter(Boolean);
  return /\w-/.test(word) ? parts.map((part) => `+${part}`).join(" ") : word.replace(/^([a-z]{4,}?)(?:ing|ed|es|e|s)$/i, "$1");
};
Worker.prototype.postMessage = function (message) {
  postMessage.call(this, message?.type === QUERY ? { ...message, data: message.data.split(/\s+/).map(plain).join(" ") } : message);
};
