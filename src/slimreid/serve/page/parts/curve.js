// The calibration as a curve: what share of strangers a threshold lets in, and what share of the known it misses.

import { svg } from "../dom.js";
import { number, percent, t } from "../i18n.js";

const MARGIN = { top: 28, right: 18, bottom: 52, left: 60 };
const LOWEST = 5e-4;

/** Scales of a drawing: scores to the right, shares upwards on a logarithmic scale. */
const makeScales = (points, width, height) => {
  const scores = points.flatMap(({ threshold }) => [threshold.low, threshold.high, threshold.value]);
  const room = Math.max(0.02, 0.12 * (Math.max(...scores) - Math.min(...scores)));
  const low = Math.min(...scores) - room;
  const high = Math.max(...scores) + room;
  const least = Math.min(LOWEST, ...points.map((point) => point.rate)) / 1.5;
  const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  const x = (score) => MARGIN.left + (inner.width * (score - low)) / (high - low);
  const y = (share) => MARGIN.top + (inner.height * Math.log(1 / Math.max(share, least))) / Math.log(1 / least);
  return { x, y, low, high, least, inner };
};

const steps = (low, high) => {
  const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1].find((size) => (high - low) / size <= 7) ?? 1;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(at);
  return { found, digits: step < 0.1 ? 2 : 1 };
};

const axes = ({ x, y, low, high, least, inner }) => {
  const right = MARGIN.left + inner.width;
  const bottom = MARGIN.top + inner.height;
  const shares = [1, 0.1, 0.01, 0.001, 0.0001].filter((share) => share >= least);
  const { found, digits } = steps(low, high);
  return [
    ...shares.flatMap((share) => [
      svg("line", { class: "grid", x1: MARGIN.left, x2: right, y1: y(share), y2: y(share) }),
      svg("text", { x: MARGIN.left - 8, y: y(share) + 4, "text-anchor": "end" }, percent(share)),
    ]),
    ...found.flatMap((score) => [
      svg("line", { class: "grid", x1: x(score), x2: x(score), y1: bottom, y2: bottom + 5 }),
      svg("text", { x: x(score), y: bottom + 20, "text-anchor": "middle" }, number(score, digits)),
    ]),
    svg("line", { class: "axis", x1: MARGIN.left, x2: right, y1: bottom, y2: bottom }),
    svg("text", { x: MARGIN.left + inner.width / 2, y: bottom + 42, "text-anchor": "middle" }, t("curve.score")),
  ];
};

const path = (places) => places.map(([x, y], number_) => `${number_ ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

const series = (kind, points, { x, y }, share) => {
  const there = points.filter((point) => share(point) !== null);
  const middle = (point) => [x(point.threshold.value), y(share(point).value)];
  return [
    svg("path", { class: `line ${kind}`, d: path(there.map(middle)) }),
    ...there.map((point) => svg("line", { class: `interval ${kind}`, x1: x(point.threshold.value), x2: x(point.threshold.value), y1: y(share(point).low), y2: y(share(point).high) })),
    ...there.map((point) => svg("circle", { class: `dot ${kind}`, cx: middle(point)[0], cy: middle(point)[1], r: 4.5 })),
  ];
};

const promised = (points, { x, y }) => [
  svg("path", { class: "line promised", d: path(points.map((point) => [x(point.threshold.value), y(point.rate)])) }),
  ...points.map((point) => svg("line", { class: "interval promised", x1: x(point.threshold.low), x2: x(point.threshold.high), y1: y(point.rate), y2: y(point.rate) })),
  ...points.map((point) => svg("circle", { class: "dot promised", cx: x(point.threshold.value), cy: y(point.rate), r: 4.5 })),
];

/** What a score means: unsure from the laxer threshold on, known above the one in use. */
const zones = (lax, strict, { x, inner }) => {
  const right = MARGIN.left + inner.width;
  const band = (kind, from, to) => svg("rect", { class: `band ${kind}`, x: from, y: MARGIN.top, width: Math.max(0, to - from), height: inner.height });
  const known = x(strict.threshold.value);
  return [lax && band("lax", x(lax.threshold.value), known), band("strict", known, right)];
};

/** The threshold in use, as a line over the whole height with its score. */
const marker = (point, { x, inner }) => {
  const at = x(point.threshold.value);
  const right = at > MARGIN.left + 0.7 * inner.width;
  return [
    svg("line", { class: "threshold", x1: at, x2: at, y1: MARGIN.top - 8, y2: MARGIN.top + inner.height }),
    svg("text", { class: "threshold-text", x: right ? at - 6 : at + 6, y: MARGIN.top - 12, "text-anchor": right ? "end" : "start" }, t("curve.threshold", { score: number(point.threshold.value, 3) })),
  ];
};

/** The curve of points that have a threshold, with the one in use and its laxer one marked; `width` in pixels. */
export const curve = (points, chosen, lax, width) => {
  const height = Math.max(280, Math.min(400, 0.62 * width));
  const ordered = [...points].sort((a, b) => a.threshold.value - b.threshold.value);
  const scales = makeScales(ordered, width, height);
  return svg("svg", { class: "curve", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": t("curve.label") },
    chosen && zones(lax, chosen, scales),
    axes(scales),
    series("fnir", ordered, scales, (point) => point.fnir),
    series("achieved", ordered, scales, (point) => point.achieved),
    promised(ordered, scales),
    chosen && marker(chosen, scales));
};
