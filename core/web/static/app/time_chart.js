// Values over time, drawn by uPlot in the colours of the page. Marking a part with the pointer zooms.

import { colour } from "./dom.js";
import { moment, shortMoment } from "./units.js";

const DAY_S = 86_400;

/** Returns the label of a tick of the axis: the day at midnight, and seconds only if the ticks are that close. */
function tickText(at, step) {
  const text = moment(at * 1e9);
  if (step >= DAY_S) return text.slice(5, 10);
  if (step < 60) return text.slice(11);
  return text.slice(11, 16) === "00:00" ? text.slice(5, 10) : text.slice(11, 16);
}

let plotter = null;

/** uPlot and its style sheet, fetched when the first chart is drawn. */
async function loadPlotter() {
  plotter ??= (async () => {
    const sheet = document.createElement("link");
    sheet.rel = "stylesheet";
    sheet.href = "vendor/uplot/uPlot.min.css";
    const [{ default: uPlot }] = await Promise.all([
      import("../vendor/uplot/uPlot.esm.js"),
      new Promise((settle, fail) => {
        sheet.addEventListener("load", settle);
        sheet.addEventListener("error", fail);
        document.head.append(sheet);
      }),
    ]);
    return uPlot;
  })();
  return plotter;
}

/**
 * Draw into `parent` and return what can be destroyed.
 *
 * range     [from, to] in seconds
 * x         times in seconds, in order
 * series    a list of { label, colour, values, dash, points, bars }
 * format    a value in words
 * zoom      called with the range that the reader marked; absent: nothing can be marked
 * marks     moments in seconds that are marked at the bottom
 * most      how far the scale reaches at least
 * height    in pixels, or a function that says it
 * legend    whether values are shown below
 *
 * `update({ range, x, values, marks }, label)` shows others of the same series.
 */
export async function timeChart(parent, { range, x, series, format, zoom = null, label, marks = [], most = 0, legend = true, height = 190 }) {
  const Plot = await loadPlotter();
  const [line, muted] = [colour("--line"), colour("--muted")];
  const font = "11px ui-sans-serif, system-ui, sans-serif";
  const few = x.length < 60 && legend;
  const now = { range, marks };
  const high = () => (typeof height === "function" ? Math.max(80, height()) : height);
  const wide = () => Math.max(legend ? 240 : 120, parent.clientWidth - (legend ? 28 : 0));
  const scale = (_, least, greatest) => {
    const end = Math.max(greatest ?? 0, most, 1);
    return [-0.03 * end, end * 1.06];
  };
  const axis = { stroke: muted, font, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1, size: 4 } };
  const options = {
    width: wide(),
    height: high(),
    cursor: { drag: { x: Boolean(zoom), y: false, setScale: false }, points: { size: 6 } },
    select: { show: Boolean(zoom) },
    legend: { live: true, show: legend },
    scales: { x: { time: true, range: () => now.range }, y: { range: scale } },
    axes: [{ ...axis, size: 30, values: (_, ticks, __, ___, step) => ticks.map((at) => tickText(at, step)) }, { ...axis, size: legend ? 64 : 48, values: (_, ticks) => ticks.map(format) }],
    series: [
      { label: "Time", value: (_, at) => (at === null ? "–" : shortMoment(at * 1e9)) },
      ...series.map((one) => ({
        label: one.label,
        stroke: colour(one.colour),
        width: 1.5,
        dash: one.dash ? [4, 4] : undefined,
        fill: one.bars ? colour(one.colour) : undefined,
        paths: one.bars ? Plot.paths.bars({ size: [0.8, 40] }) : undefined,
        points: { show: !one.bars && (one.points || few), size: 5, fill: colour("--surface") },
        spanGaps: Boolean(one.points),
        value: (_, value) => (value === null || value === undefined ? "–" : format(value)),
      })),
    ],
    hooks: {
      setSelect: [
        (plot) => {
          if (!zoom || plot.select.width < 4) return;
          const [from, to] = [plot.select.left, plot.select.left + plot.select.width].map((at) => plot.posToVal(at, "x"));
          zoom(from, to);
        },
      ],
      draw: [(plot) => drawMarks(plot, now.marks)],
    },
  };
  const plot = new Plot(options, [x, ...series.map((one) => one.values)], parent);
  plot.root.setAttribute("role", "img");
  plot.root.setAttribute("aria-label", label);
  plot.ctx.canvas.setAttribute("aria-hidden", "true");
  const observer = new ResizeObserver(() => parent.clientWidth && plot.setSize({ width: wide(), height: high() }));
  observer.observe(parent);
  return {
    update(next, said) {
      Object.assign(now, { range: next.range, marks: next.marks ?? [] });
      plot.setData([next.x, ...next.values]);
      plot.root.setAttribute("aria-label", said);
    },
    destroy() {
      observer.disconnect();
      plot.destroy();
    },
  };
}

/** Draws a small triangle on the axis for each visible moment. */
function drawMarks(plot, marks) {
  const { ctx, bbox } = plot;
  const size = 4 * devicePixelRatio;
  ctx.save();
  ctx.fillStyle = colour("--over");
  for (const at of marks) {
    if (at < plot.scales.x.min || at > plot.scales.x.max) continue;
    const left = plot.valToPos(at, "x", true);
    ctx.beginPath();
    ctx.moveTo(left, bbox.top + bbox.height - 2 * size);
    ctx.lineTo(left - size, bbox.top + bbox.height);
    ctx.lineTo(left + size, bbox.top + bbox.height);
    ctx.fill();
  }
  ctx.restore();
}
