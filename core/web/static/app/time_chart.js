// Values over time, drawn by uPlot in the colours of the page. Marking a part with the pointer zooms.

import { colour } from "./dom.js";
import { moment, shortMoment } from "./units.js";

const DAY_S = 86_400;

/** Hours and minutes, and the day at midnight. */
function shortTime(at) {
  const text = moment(at * 1e9);
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
 * zoom      called with the range that the reader marked
 */
export async function timeChart(parent, { range, x, series, format, zoom, label, height = 190 }) {
  const Plot = await loadPlotter();
  const [line, muted] = [colour("--line"), colour("--muted")];
  const font = "11px ui-sans-serif, system-ui, sans-serif";
  const few = x.length < 60;
  const axis = { stroke: muted, font, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1, size: 4 } };
  const options = {
    width: Math.max(240, parent.clientWidth - 28),
    height,
    cursor: { drag: { x: true, y: false }, points: { size: 6 } },
    select: { show: true },
    legend: { live: true },
    scales: { x: { time: true, range: () => range }, y: { range: (_, least, most) => [-0.03 * Math.max(most ?? 0, 1), Math.max(most ?? 0, 1) * 1.06] } },
    axes: [{ ...axis, values: (_, ticks, __, ___, step) => ticks.map((at) => (step < DAY_S ? shortTime(at) : moment(at * 1e9).slice(5, 10))) }, { ...axis, size: 64, values: (_, ticks) => ticks.map(format) }],
    series: [
      { label: "Time", value: (_, at) => (at === null ? "–" : shortMoment(at * 1e9)) },
      ...series.map((one) => ({
        label: one.label,
        stroke: colour(one.colour),
        width: 1.5,
        dash: one.dash ? [4, 4] : undefined,
        fill: one.bars ? colour(one.colour) : undefined,
        paths: one.bars ? Plot.paths.bars({ size: [0.8, 40] }) : undefined,
        points: { show: !one.bars && (one.points || few), size: 5 },
        spanGaps: Boolean(one.points),
        value: (_, value) => (value === null || value === undefined ? "–" : format(value)),
      })),
    ],
    hooks: {
      setSelect: [
        (plot) => {
          if (plot.select.width < 4) return;
          const [from, to] = [plot.select.left, plot.select.left + plot.select.width].map((at) => plot.posToVal(at, "x"));
          zoom(from, to);
        },
      ],
    },
  };
  const plot = new Plot(options, [x, ...series.map((one) => one.values)], parent);
  plot.root.setAttribute("role", "img");
  plot.root.setAttribute("aria-label", label);
  plot.ctx.canvas.setAttribute("aria-hidden", "true");
  const observer = new ResizeObserver(() => parent.clientWidth && plot.setSize({ width: Math.max(240, parent.clientWidth - 28), height }));
  observer.observe(parent);
  return {
    destroy() {
      observer.disconnect();
      plot.destroy();
    },
  };
}
