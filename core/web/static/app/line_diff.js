// Finds the differences between two texts, line by line.

const MOST_CELLS = 4_000_000;

/** Returns lines as { sign, text, number }. Sign " ": in both texts; "-": only in the first; "+": only in the second. */
export function lineDiff(before, after) {
  const a = before.split("\n");
  const b = after.split("\n");
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const lines = a.slice(0, start).map((text) => ({ sign: " ", text }));
  lines.push(...middle(a.slice(start, a.length - end), b.slice(start, b.length - end)));
  lines.push(...a.slice(a.length - end).map((text) => ({ sign: " ", text })));
  return lines;
}

function middle(a, b) {
  const removed = a.map((text) => ({ sign: "-", text }));
  const added = b.map((text) => ({ sign: "+", text }));
  if (!a.length || !b.length || a.length * b.length > MOST_CELLS) return [...removed, ...added];
  const width = b.length + 1;
  // For each pair of places, the length of the longest common part of the lines from there on.
  const longest = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      longest[i * width + j] = a[i] === b[j] ? longest[(i + 1) * width + j + 1] + 1 : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      lines.push({ sign: " ", text: a[i] });
      i += 1;
      j += 1;
    } else if (longest[(i + 1) * width + j] >= longest[i * width + j + 1]) lines.push(removed[i++]);
    else lines.push(added[j++]);
  }
  return [...lines, ...removed.slice(i), ...added.slice(j)];
}
