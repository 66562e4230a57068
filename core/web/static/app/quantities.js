// Reads amounts as people write them, and returns the core's units: thousandths for vcore, bytes for memory.

const SUFFIXES = { "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50 };
const ALIASES = { cpu: "vcore", cores: "vcore", core: "vcore", mem: "memory", gpu: "nvidia.com/gpu" };

/** Returns the amounts in a text such as `vcore=2, memory=4Gi`. Throws an Error that says what is wrong. */
export function readAmounts(text) {
  const found = {};
  for (const part of text.split(/[,;\n]/)) {
    if (!part.trim()) continue;
    const [, name, value] = /^\s*([^=:\s]+)\s*[=:]\s*(\S+)\s*$/.exec(part) ?? [];
    if (!name) throw new Error(`"${part.trim()}" is not an amount such as vcore=2 or memory=4Gi`);
    const type = ALIASES[name] ?? name;
    found[type] = readQuantity(type, value);
  }
  return found;
}

function readQuantity(type, text) {
  const [, digits, suffix] = /^(\d+(?:\.\d+)?)([a-zA-Z]*)$/.exec(text) ?? [];
  if (digits === undefined) throw new Error(`"${text}" is not a quantity of ${type}`);
  if (suffix === "m" && type === "vcore") return Math.round(Number(digits));
  const factor = SUFFIXES[suffix];
  if (factor === undefined) throw new Error(`"${suffix}" is not a unit: k, M, G, T, Ki, Mi, Gi, Ti, or m for thousandths of a core`);
  return Math.round(Number(digits) * factor * (type === "vcore" ? 1000 : 1));
}
