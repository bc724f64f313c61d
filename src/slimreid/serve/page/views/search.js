// The first view: put images in, see who it is.

import { api } from "../api.js";
import { el, icon } from "../dom.js";
import { t } from "../i18n.js";
import { enrolQuery } from "../parts/enrol.js";
import { filters, searchFields } from "../parts/filters.js";
import { note, panel, problemBox, say, serviceText, working } from "../parts/panels.js";
import { answerView } from "../parts/answer.js";
import { decisionText } from "../parts/decision.js";
import { makeScale } from "../parts/scores.js";
import { slots } from "../parts/slots.js";
import { toast } from "../parts/toast.js";
import { clearQuery, filledShots, may, query, refresh, shared } from "../state.js";

let running = null;
let current = () => {};
let paste = null;

const findPatches = async () => {
  const shots = filledShots();
  if (!query.showPatches || query.patches || !shots.length) return;
  try {
    const { samples } = await api.patches(shots);
    query.patches = new Map(shots.map((shot, number) => [shot, samples[number]]));
  } catch (problem) {
    query.showPatches = false;
    toast(serviceText(problem.message));
  }
};

/** Asks who the images show; a newer question cancels an older one. */
const ask = async (show) => {
  running?.abort();
  running = null;
  if (!filledShots().length) {
    Object.assign(query, { answer: null, problem: null, busy: false });
    return show();
  }
  const turn = (running = new AbortController());
  Object.assign(query, { busy: true, problem: null, patches: null });
  show();
  try {
    const result = await api.identify(filledShots(), searchFields(), turn.signal);
    Object.assign(query, { answer: result.answers[0], samples: result.samples, busy: false });
    await findPatches();
    say(`${decisionText(query.answer, makeScale(query.answer))}${t("space")}${t("matches.spoken", { n: query.answer.matches.length })}`);
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    if (!(error.status >= 0)) throw error;
    Object.assign(query, { problem: error, answer: null, busy: false });
  }
  return show();
};

const emptyGallery = () =>
  panel("identities", t("empty.title"), may("editor") ? t("empty.editor") : t("empty.viewer"),
    may("editor") && el("a", { class: "button", href: "#enrol" }, t("enrol.many")),
    el("code", { class: "command", translate: "no" }, `slimreid gallery enrol ${shared.status.gallery} FOLDER`));

const invitation = () => panel("search", t("invite.title"), t("invite.text"));

const uncalibrated = () => {
  const { state } = shared.status.calibration;
  if (state === "ok" || !shared.status.rows) return null;
  return note(el("p", {}, t(`calibration.${state}`), t("space"), el("a", { href: "#calibration" }, t("calibration.open"))));
};

/** Draws the view into `main`; `again` draws it anew after a change of the gallery. */
export const searchView = (main, again) => {
  const answer = el("section", { class: "answer", "aria-label": t("answer.label") });
  const changed = async () => {
    await refresh();
    await ask(show);
  };
  const enrol = (names = []) => enrolQuery(names, async () => { await refresh(); await again(); await ask(current); });
  let shaded = null;
  const show = () => {
    const grids = query.showPatches ? query.patches : null;
    if (grids !== shaded) board.place(); // otherwise the pictures stay as they are
    shaded = grids;
    clear.hidden = more.hidden = !filledShots().length;
    enrolButton.hidden = !filledShots().length || !may("editor");
    answer.toggleAttribute("aria-busy", query.busy);
    answer.replaceChildren(...[
      uncalibrated(),
      query.problem && problemBox(query.problem, () => ask(show)),
      query.busy && working("search.working"),
      !query.busy && query.answer && answerView(query.answer, { changed, enrol, repatch: async () => { await findPatches(); show(); } }),
      !query.busy && !query.answer && !query.problem && (shared.status.rows ? invitation() : emptyGallery()),
    ].flat().filter(Boolean));
  };
  const board = slots(() => ask(show));
  const more = el("button", { type: "button", onclick: () => board.addShot() }, icon("plus"), t("shot.add"));
  const clear = el("button", { type: "button", class: "quiet", onclick: () => { clearQuery(); board.place(); ask(show); } }, t("clear"));
  const enrolButton = el("button", { type: "button", onclick: () => enrol() }, t("enrol.open"));
  main.replaceChildren(
    el("h1", {}, t("search.title")),
    el("div", { class: "workbench" },
      el("section", { class: "query", "aria-label": t("query.label") },
        el("p", { class: "small faint" }, t("query.help")),
        board.zone,
        el("div", { class: "row" }, more, enrolButton, clear),
        filters(() => ask(show))),
      answer));
  current = show;
  paste = board.takeMany;
  show();
  if (query.problem?.name === "ConnectionLost") ask(show); // it is drawn anew when the connection is back
};

addEventListener("paste", (event) => {
  if (paste && document.querySelector(".zone") && event.clipboardData.files.length) paste(event.clipboardData.files);
});
