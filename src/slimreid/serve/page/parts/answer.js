// The answer to a search: the decision, then the ranked matches.

import { data, el } from "../dom.js";
import { parts, t } from "../i18n.js";
import { may, query, shared } from "../state.js";
import { choice, rowCard } from "./cards.js";
import { compare } from "./compare.js";
import { decisionCard } from "./decision.js";
import { reasonParts } from "./names.js";
import { makeScale } from "./scores.js";
import { note } from "./panels.js";

const enrolActions = (answer, enrol) => {
  if (!may("editor")) return null;
  const names = answer.name ? [answer.name] : answer.candidates.map((each) => each.name);
  if (answer.state === "known") return el("button", { type: "button", onclick: () => enrol(names) }, el("span", {}, parts("enrol.as", { name: data(answer.name) })));
  return el("button", { type: "button", onclick: () => enrol(answer.state === "unknown" ? [] : names) }, t(answer.state === "unknown" ? "enrol.stranger" : "enrol.open"));
};

/** Bad images make bad answers: what speaks against those of the query. */
const concerns = () => {
  const reasons = query.samples.flatMap((sample) => sample.reasons.map((reason) => el("li", {}, t("shot", { n: sample.number + 1 }), t("comma"), reasonParts(reason))));
  return reasons.length > 0 && note(el("p", {}, t("query.concerns")), el("ul", {}, reasons));
};

const legend = (scale) =>
  scale.strict !== null &&
  el("p", { class: "legend small faint" }, el("span", { class: "key strict" }, t("legend.strict")), el("span", { class: "key lax" }, t("legend.lax")), el("span", { class: "key below" }, t("legend.below")));

/** The whole answer; `changed` after a change of the gallery, `enrol` to enrol the query, `repatch` for kept patches. */
export const answerView = (answer, { changed, enrol, repatch }) => {
  const scale = makeScale(answer);
  const chosen = choice(changed, { split: true });
  const patches = shared.status.model.patches &&
    el("label", { class: "check" }, el("input", { type: "checkbox", checked: query.showPatches, onchange: (event) => { query.showPatches = event.target.checked; repatch(); } }),
      el("span", {}, t("patches.show")));
  const cards = answer.matches.map((match) =>
    rowCard(match.row, { match, scale, chosen, compare: (row, found) => compare(row, found, scale) }));
  return [
    decisionCard(answer, scale, enrolActions(answer, enrol)),
    concerns(),
    el("section", { class: "matches", "aria-labelledby": "matches" },
      el("div", { class: "row spread" },
        el("h2", { id: "matches" }, t("matches.title", { n: answer.matches.length }), " ", el("small", { class: "faint" }, t("matches.searched", { n: answer.searched }))),
        patches),
      legend(scale),
      answer.matches.length ? el("ol", { class: "cards" }, cards) : el("p", { class: "faint" }, t("matches.none")),
      chosen.bar),
  ];
};
