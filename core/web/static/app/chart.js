// Shares over time as lines on a canvas.

import { colour, freshCanvas } from "./dom.js";
import { nameOf, percent, span } from "./units.js";

const LEFT = 40;
const BOTTOM = 18;
const TOP = 6;

/** Draw `samples` ({at, shares}) of the last `spanMs`; `marks`: moments in ms that are marked at the bottom. */
export function drawShares(canvas, samples, types, { spanMs, marks = [] }) {
  const { clientWidth: width, clientHeight: height } = canvas.parentElement;
  if (!width || !height) return;
  const paint = freshCanvas(canvas, width, height);
  const now = samples.at(-1)?.at ?? Date.now();
  const x = (at) => LEFT + ((at - now + spanMs) / spanMs) * (width - LEFT - 2);
  const y = (share) => TOP + (1 - Math.min(share, 1)) * (height - TOP - BOTTOM);
  paint.font = "11px ui-sans-serif, system-ui, sans-serif";
  paint.fillStyle = colour("--faint");
  paint.strokeStyle = colour("--line");
  paint.lineWidth = 1;
  paint.textBaseline = "middle";
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const level = Math.round(y(share)) + 0.5;
    paint.beginPath();
    paint.moveTo(LEFT, level);
    paint.lineTo(width, level);
    paint.stroke();
    if (share % 0.5 === 0) {
      paint.textAlign = "right";
      paint.fillText(percent(share), LEFT - 8, level);
    }
  }
  paint.textBaseline = "alphabetic";
  paint.textAlign = "left";
  paint.fillText(`${span(spanMs)} ago`, LEFT, height - 3);
  paint.textAlign = "right";
  paint.fillText("now", width - 2, height - 3);
  types.forEach((type, place) => {
    paint.strokeStyle = colour(`--series-${(place % 3) + 1}`);
    paint.lineWidth = 1.75;
    paint.lineJoin = "round";
    paint.beginPath();
    for (const sample of samples) {
      const share = sample.shares[type];
      if (share === undefined || sample.at < now - spanMs) continue;
      paint.lineTo(x(sample.at), y(share));
    }
    paint.stroke();
  });
  paint.fillStyle = colour("--over");
  for (const at of marks) {
    if (at < now - spanMs) continue;
    paint.beginPath();
    paint.moveTo(x(at), height - BOTTOM - 7);
    paint.lineTo(x(at) - 3.5, height - BOTTOM);
    paint.lineTo(x(at) + 3.5, height - BOTTOM);
    paint.fill();
  }
  const last = samples.at(-1)?.shares ?? {};
  const said = types.map((type) => `${nameOf(type)} ${percent(last[type] ?? 0)}`).join(", ");
  canvas.setAttribute("aria-label", `Utilisation over the last ${span(spanMs)}. Now: ${said}`);
}
