// Enrol the images of the query: who it is, where and when; what would become of each shot is shown before.

import { api } from "../api.js";
import { el } from "../dom.js";
import { percent, t } from "../i18n.js";
import { filledShots } from "../state.js";
import { nameField, planDialog } from "./change.js";
import { modalityText, reasonParts } from "./names.js";
import { toast } from "./toast.js";

const sampleLine = (sample) =>
  el("li", {},
    el("b", {}, t("shot", { n: sample.number + 1 })), " (", sample.modalities.map(modalityText).join(t("comma")), "): ",
    t(sample.state === "known" ? "enrol.known" : "enrol.new"), t("space"), t("quality", { share: percent(sample.quality) }),
    [...sample.reasons, ...sample.concerns].map((reason) => el("span", { class: "chip warn" }, reasonParts(reason))));

const describe = (answer) => {
  const count = answer.samples.filter((sample) => sample.state === "enrolled").length;
  return [el("p", {}, count ? t("enrol.rows", { n: count }) : t("enrol.none")), el("ul", { class: "moves" }, answer.samples.map(sampleLine))];
};

/** Opens the dialog; `names` are identities that are likely, the first is filled in. */
export const enrolQuery = (names, changed) => {
  const shots = filledShots();
  const name = nameField(t("identity"), names[0] ?? "", names, t("assign.help"));
  const camera = nameField(t("filter.camera"), "");
  const group = nameField(t("group"), "", [], t("group.help"));
  const time = el("input", { type: "datetime-local", step: 1 });
  const fields = (dryRun) => ({
    identity: name.input.value.trim(), camera: camera.input.value.trim(), group: group.input.value.trim(),
    time: time.value ? new Date(time.value).toISOString() : null, dry_run: dryRun,
  });
  planDialog({
    title: t("enrol.title"), explain: t("enrol.explain"), confirm: t("enrol"),
    fields: [name.nodes, el("div", { class: "pair" }, camera.nodes, el("label", { class: "field" }, el("span", {}, t("time")), time)), group.nodes],
    ask: (dryRun) => api.enrol(shots, fields(dryRun)),
    describe,
    done: async (answer) => {
      const count = answer.samples.filter((sample) => sample.state === "enrolled").length;
      toast(count ? t("enrol.done", { n: count }) : t("enrol.none"), answer.entry, changed);
      await changed();
    },
  });
};
