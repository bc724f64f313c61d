// The answer in words, with the rate behind it.

import { data, el, icon } from "../dom.js";
import { parts, percent, t } from "../i18n.js";
import { query, shared } from "../state.js";
import { strangers } from "./names.js";
import { serviceText } from "./panels.js";
import { meter } from "./scores.js";

const promise = (answer) => t("rate.promise", { n: strangers(answer.rate) });

const title = (answer) => {
  if (answer.state === "known") return parts("decision.known", { name: data(answer.name, "b") });
  return [t(`decision.${answer.state}`)];
};

const why = (answer, scale) => {
  if (answer.state === "known") return [promise(answer)];
  if (answer.state === "unknown") return [t("decision.unknown.why"), t("space"), promise(answer)];
  if (answer.state === "unsure") {
    const above = answer.candidates.filter((each) => each.score > scale.strict).length;
    return [above > 1 ? t("decision.several.why", { n: above }) : t("decision.unsure.why"), t("space"), promise(answer)];
  }
  const { state, rates } = shared.status.calibration;
  if (state === "none") return [t("decision.uncalibrated.why")];
  if (state === "ok" && !answer.candidates.length) return [t("matches.none")];
  const rate = query.options.rate ?? rates[0];
  if (state === "ok" && answer.strict === null && rate) return [t("decision.refused.why", { n: strangers(rate) })];
  return [serviceText(answer.reason)];
};

const candidates = (answer, scale) =>
  el("ol", { class: "candidates", "aria-label": t("candidates") },
    answer.candidates.slice(0, 5).map((each) => el("li", {},
      el("a", { href: `#identity/${encodeURIComponent(each.name)}`, translate: "no" }, each.name), meter(each.score, scale))));

/** The decision as a card; `actions` are buttons that follow from it. */
export const decisionCard = (answer, scale, actions) =>
  el("section", { class: `decision ${answer.state} fade`, "aria-labelledby": "decision" },
    icon(answer.state),
    el("div", {},
      el("h2", { id: "decision" }, title(answer)),
      el("p", {}, why(answer, scale)),
      answer.candidates.length > (answer.state === "known" ? 1 : 0) && candidates(answer, scale),
      el("div", { class: "row" }, actions)));

/** The decision as a sentence, for a screen reader. */
export const decisionText = (answer, scale) =>
  [...title(answer), t("stop"), ...why(answer, scale)].map((part) => (part instanceof Node ? part.textContent : part)).join("");

/** Rates to choose from; the highest the gallery is calibrated for comes first. */
export const rateSelect = (rates, chosen, onchange) =>
  el("select", { onchange: (event) => onchange(Number(event.target.value)) },
    rates.map((rate) => el("option", { value: rate, selected: rate === chosen }, t("rate.option", { n: strangers(rate), share: percent(rate) }))));
