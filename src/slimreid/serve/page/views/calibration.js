// Thresholds and what they mean, as a curve and a table.

import { api } from "../api.js";
import { el } from "../dom.js";
import { number, percent, t } from "../i18n.js";
import { curve } from "../parts/curve.js";
import { rateSelect } from "../parts/decision.js";
import { jobProgress } from "../parts/jobs.js";
import { strangers, subsetText } from "../parts/names.js";
import { loadInto, note, panel, serviceText } from "../parts/panels.js";
import { toast } from "../parts/toast.js";
import { may, query, refresh, shared } from "../state.js";

const view = { subset: "" };

const interval = (estimate, show) => (estimate === null ? t("figure.none") : t("figure.interval", { value: show(estimate.value), low: show(estimate.low), high: show(estimate.high) }));

const table = (points) =>
  el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t("calibration.table") },
    el("table", {},
      el("thead", {}, el("tr", {}, ["calibration.rate", "calibration.threshold", "calibration.missed", "calibration.checked", "calibration.searches"].map((key) => el("th", { scope: "col" }, t(key))))),
      el("tbody", {}, points.map((point) => el("tr", {},
        el("th", { scope: "row" }, t("rate.option", { n: strangers(point.rate), share: percent(point.rate) })),
        point.threshold === null
          ? el("td", { colspan: 3, class: "faint" }, t("calibration.refused"))
          : [el("td", {}, interval(point.threshold, (value) => number(value, 3))), el("td", {}, interval(point.fnir, percent)), el("td", {}, interval(point.achieved, percent))],
        el("td", {}, t("calibration.behind", { n: point.searches, strangers: number(point.strangers) }))))),
    ));

const legend = () =>
  el("p", { class: "legend small" }, ["promised", "achieved", "fnir"].map((kind) => el("span", { class: `key ${kind}` }, t(`curve.${kind}`))), ["strict", "lax"].map((kind) => el("span", { class: `key band-${kind}` }, t(`curve.${kind}`))));

/** A rate so many times as high belongs to the threshold for "unsure". */
const UNSURE_FACTOR = 10;

const figure = (points, chosen) => {
  const lax = chosen && points.find((point) => Math.abs(point.rate / chosen.rate - UNSURE_FACTOR) < 1e-6);
  const box = el("div", { class: "plot" });
  let drawn = 0;
  new ResizeObserver(() => {
    const width = Math.min(Math.floor(box.clientWidth), 860);
    if (!width || width === drawn) return;
    drawn = width;
    box.replaceChildren(curve(points, chosen, lax, width));
  }).observe(box);
  return el("figure", {}, box, el("figcaption", {}, legend()));
};

const calibrateButton = (again) => {
  if (!may("admin") || !shared.status.rows) return null;
  const place = el("div", {});
  const start = async () => {
    try {
      const job = await api.calibrate();
      place.replaceChildren(jobProgress(job, async (finished) => {
        toast(t(finished.state === "done" ? "calibration.done" : "calibration.failed"));
        if (finished.state !== "done") return;
        await refresh();
        await again();
      }));
    } catch (problem) {
      toast(serviceText(problem.message));
    }
  };
  return el("div", {}, el("button", { type: "button", onclick: start }, t("calibration.start")), place);
};

const nothing = (again) =>
  panel("calibration", t("calibration.empty.title"), t("calibration.empty.text"),
    el("code", { class: "command", translate: "no" }, `slimreid gallery calibrate ${shared.status.gallery}`), calibrateButton(again));

const facts = (found) =>
  el("p", { class: "faint" }, t("calibration.made", { identities: number(found.identities), rows: number(found.rows) }));

/** Draws the view into `main`. */
export const calibrationView = (main, again) => {
  const place = el("div", {});
  const show = (found) => {
    const subsets = [...new Set(found.points.map((point) => point.subset))];
    const rate = found.rates.includes(query.options.rate) ? query.options.rate : found.rates[0];
    const points = found.points.filter((point) => point.subset === (subsets.includes(view.subset) ? view.subset : ""));
    const drawn = points.filter((point) => point.threshold !== null);
    const chosen = drawn.find((point) => point.rate === rate);
    const redraw = () => place.replaceChildren(...[show(found)].flat());
    const subset = el("select", { onchange: (event) => { view.subset = event.target.value; redraw(); } },
      subsets.map((name) => el("option", { value: name, selected: name === view.subset }, subsetText(name))));
    return [
      found.state !== "ok" && note(el("p", {}, t(`calibration.${found.state}`)), el("p", { class: "small" }, serviceText(found.reason))),
      facts(found),
      el("div", { class: "pair limited" },
        found.rates.length > 0 && el("label", { class: "field" }, el("span", {}, t("rate.label")), rateSelect(found.rates, rate, (value) => { query.options.rate = value; redraw(); })),
        el("label", { class: "field" }, el("span", {}, t("calibration.subset")), subset)),
      chosen && el("p", { class: "sentence" }, t("calibration.sentence", { score: number(chosen.threshold.value, 3), n: strangers(chosen.rate), missed: chosen.fnir === null ? t("figure.none") : percent(chosen.fnir.value) })),
      drawn.length > 0 && figure(drawn, chosen),
      table(points),
      calibrateButton(again),
    ].filter(Boolean);
  };
  main.replaceChildren(el("h1", {}, t("calibration.title")), el("p", { class: "faint" }, t("calibration.explain")), place);
  return loadInto(place, async () => {
    const found = await api.calibration();
    return found.points.length ? show(found) : nothing(again);
  });
};
