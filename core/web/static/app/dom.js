// Makes elements without markup in strings, because names in a cluster come from other people and must stay text.

const SVG = "http://www.w3.org/2000/svg";

/** Makes an element. Props: `class`, `text`, `on` (listeners), `data`; all others are attributes, which are left out if
    null or false. */
export function el(tag, props = {}, ...children) {
  const node = tag === "svg" || tag === "path" ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name === "class") node.setAttribute("class", value);
    else if (name === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else if (name === "data") Object.assign(node.dataset, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Set the text if it differs, so that selections and screen readers are not disturbed without need. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Set or remove an attribute, only when that changes anything. */
export function setAttribute(node, name, value) {
  if (value === null || value === undefined) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/** Make the children of `parent` those of `items`, reusing elements by key. */
export function reconcile(parent, items, keyOf, create, update) {
  const known = parent.keyed ?? new Map();
  const kept = new Map();
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let node = known.get(key);
    if (!node) node = create(item);
    update(node, item);
    kept.set(key, node);
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  }
  for (const [key, node] of known) if (!kept.has(key)) node.remove();
  parent.keyed = kept;
}

/** Returns a function that runs `act` once in the next frame, however often it is called. */
export function inNextFrame(act) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      act();
    });
  };
}

/** Returns a function that runs `act` once it has not been called for a while. */
export function settled(act, ms = 200) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(act, ms);
  };
}

/** Say in the middle of a view that there is nothing, and why. */
export function blank(title, text = "", code = "") {
  return el("div", { class: "blank" }, el("strong", { text: title }), text, code && el("code", { text: code }));
}

/** Returns the value of a CSS variable, for canvases. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Returns the cleared context of a canvas, scaled to the screen, and its size in CSS pixels. */
export function freshCanvas(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  const [wide, high] = [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}
