// Amounts and times as people read them. The core counts vcore in thousandths and memory in bytes.

const GIB = 2 ** 30;
const format = (digits) => new Intl.NumberFormat("en", { maximumFractionDigits: digits });
const WHOLE = format(0);
const ONE = format(1);
const TWO = format(2);

const UNITS = { vcore: "cores", memory: "GiB", "ephemeral-storage": "GiB" };
const SCALES = { vcore: 1000, memory: GIB, "ephemeral-storage": GIB };
const ORDER = ["vcore", "memory", "nvidia.com/gpu", "ephemeral-storage", "pods"];

const rank = (type) => (ORDER.indexOf(type) + 1 || ORDER.length + 1);

/** Returns the resource types of several maps, the usual ones first. */
export const typesOf = (...maps) => typesIn(maps);

/** The same of a list of any length: a call takes some ten thousand arguments at most. */
export function typesIn(maps) {
  const names = new Set(maps.flatMap((map) => Object.keys(map ?? {})));
  return [...names].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
}

/** The unit of a type; empty: a count. */
export const unitOf = (type) => UNITS[type] ?? "";

/** Returns the name of a type for a heading. */
export const nameOf = (type) => ({ vcore: "CPU", memory: "Memory" })[type] ?? type;

/** The heading of a column of amounts: the type, what of it, and the unit. */
export const headOf = (type, what = "") => [[nameOf(type), what].filter(Boolean).join(" "), unitOf(type)].filter(Boolean).join(", ");

/** An amount in the unit that `headOf` names, as a number; empty: there is none. */
export const inUnit = (type, amount) => (amount === undefined ? "" : amount / (SCALES[type] ?? 1));

/** An amount without its unit. */
export function bare(type, amount) {
  const value = (amount ?? 0) / (SCALES[type] ?? 1);
  const size = Math.abs(value);
  return (size >= 100 || Number.isInteger(value) ? WHOLE : size >= 10 ? ONE : TWO).format(value);
}

/** An amount with its unit. */
export function amount(type, value) {
  const unit = unitOf(type);
  return unit ? `${bare(type, value)} ${value === SCALES[type] && type === "vcore" ? "core" : unit}` : bare(type, value);
}

/** All amounts of a map in one line. */
export function amounts(map) {
  const types = typesOf(map);
  return types.map((type) => (unitOf(type) ? amount(type, map[type]) : `${bare(type, map[type])} ${type}`)).join(", ");
}

export const count = (number) => WHOLE.format(number ?? 0);

/** `1 node`, `2 nodes`. */
export const counted = (number, noun) => `${count(number)} ${number === 1 ? noun : plural(noun)}`;

export const plural = (noun) => (/[^aeiou]y$/.test(noun) ? `${noun.slice(0, -1)}ies` : /(s|x|ch|sh)$/.test(noun) ? `${noun}es` : `${noun}s`);

export const share = (part, whole) => (whole > 0 ? (part ?? 0) / whole : 0);

export function percent(fraction) {
  const value = fraction * 100;
  return `${value > 0 && value < 1 ? "<1" : value > 99 && value < 100 ? ">99" : Math.round(value)} %`;
}

const two = (number) => String(number).padStart(2, "0");

/** Time of day of Unix nanoseconds. */
export function clock(ns, { millis = false } = {}) {
  const at = new Date(ns / 1e6);
  const text = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return millis ? `${text}.${String(at.getMilliseconds()).padStart(3, "0")}` : text;
}

/** Date and time of Unix nanoseconds. */
export function moment(ns, { millis = false } = {}) {
  const at = new Date(ns / 1e6);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(ns, { millis })}`;
}

/** The same; empty: there is no time. */
export const momentOrNone = (ns) => (ns ? moment(ns) : "");

/** A length of time. */
export function span(ms) {
  const seconds = Math.max(0, ms / 1000);
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) {
    const rest = Math.floor(seconds % 60);
    return `${Math.floor(seconds / 60)} min${rest ? ` ${two(rest)} s` : ""}`;
  }
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${two(Math.floor((seconds % 3600) / 60))} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

/** Hours and minutes, and the day where it is not today. */
export function shortMoment(ns) {
  const text = moment(ns);
  return text.startsWith(moment(Date.now() * 1e6).slice(0, 10)) ? text.slice(11) : text.slice(5, 16);
}

export const since = (ns) => span(Date.now() - ns / 1e6);

/** Amounts as the core writes them in its texts: `vcore=1500m memory=4Gi`. */
const WRITTEN_AMOUNTS = /(?<![\w./=-])[a-z][\w./-]*=\d[\d.]*[a-zA-Z]*(?: [a-z][\w./-]*=\d[\d.]*[a-zA-Z]*)*/g;

function writtenAmount(text) {
  const [, type, digits, suffix] = /^(.+)=([\d.]+)([a-zA-Z]*)$/.exec(text);
  if (type === "vcore") return amount("vcore", Number(digits) * (suffix === "m" ? 1 : 1000));
  if (type === "memory" || type.startsWith("hugepages-")) return `${digits} ${suffix ? `${suffix}B` : "bytes"}${type === "memory" ? "" : ` ${type}`}`;
  return `${digits}${suffix} ${type}`;
}

/** A text of the core with the amounts in it as people read them. */
export function readable(text) {
  return String(text ?? "")
    .replaceAll(/'([\w./-]+)': (-?\d+)/g, (_, type, value) => (unitOf(type) ? amount(type, Number(value)) : `${bare(type, Number(value))} ${type}`))
    .replaceAll(/'([\w ./-]+)': \{([^{}]*)\}/g, "$2 ($1)")
    .replaceAll(/Resources\(([^()]*)\)/g, (_, inner) => amounts(Object.fromEntries(inner.split(/,\s*/).map((one) => one.split("=")).map(([type, value]) => [type, Number(value)]))))
    .replaceAll(WRITTEN_AMOUNTS, (text) => text.split(" ").map(writtenAmount).join(", "))
    .replaceAll(/[{}]/g, "");
}

/** `queue-quota` as `Queue quota`. */
export function words(code) {
  const text = String(code ?? "").replaceAll(/[-_]/g, " ").toLowerCase();
  return text.charAt(0).toUpperCase() + text.slice(1);
}
