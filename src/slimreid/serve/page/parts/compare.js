// Query and match side by side, modality by modality.

import { api } from "../api.js";
import { data, el } from "../dom.js";
import { moment, t } from "../i18n.js";
import { filledShots, modalities, query, shared } from "../state.js";
import { openDialog } from "./dialog.js";
import { identityName, modalityName, modalityText } from "./names.js";
import { absent, filePicture, patchShade, rowPicture } from "./pictures.js";
import { problemBox } from "./panels.js";
import { meter } from "./scores.js";

const framed = (picture, grid) => {
  const frame = el("div", { class: "frame" }, picture);
  if (grid) frame.append(patchShade(grid));
  return frame;
};

const queryPicture = (shot, name) =>
  shot[name] ? filePicture(shot[name], t("picture.query", { modality: modalityText(name), n: 1 })) : absent();

/** Kept patches of the query's first shot and of the row; the row's pictures are sent back to the model. */
const bothPatches = async (shot, row) => {
  const images = await Promise.all(row.modalities.map(async (name) => [name, await api.image(row.id, name)]));
  const { samples } = await api.patches([shot, Object.fromEntries(images)]);
  return samples;
};

/** Both pictures of one modality beside each other. */
const beside = (name, shot, row, grids) =>
  el("figure", {},
    el("figcaption", {}, modalityName(name)),
    el("div", { class: "two" },
      el("div", {}, framed(queryPicture(shot, name), grids?.[0]?.[name]), el("small", {}, t("compare.query"))),
      el("div", {}, framed(rowPicture(row, name), grids?.[1]?.[name]), el("small", {}, t("compare.match")))));

/** Opens the comparison of the query with a match. */
export const compare = (row, match, scale) => {
  const shot = filledShots()[0] ?? {};
  const pictures = el("div", { class: "beside" });
  const trouble = el("div", {});
  const show = (grids) => pictures.replaceChildren(...modalities().map((name) => beside(name, shot, row, grids)));
  const toggle = async (event) => {
    try {
      show(event.target.checked ? await bothPatches(shot, row) : null);
    } catch (problem) {
      event.target.checked = false;
      trouble.replaceChildren(problemBox(problem));
    }
  };
  show(null);
  openDialog(t("compare.title"), () => el("div", { class: "body" },
    el("div", { class: "row spread" },
      el("p", { class: "compare-head" }, el("b", {}, identityName(row.identity)),
        row.camera && [" · ", data(row.camera)], row.time !== null && [" · ", moment(row.time)]),
      shared.status.model.patches && el("label", { class: "check" }, el("input", { type: "checkbox", onchange: toggle }), el("span", {}, t("patches.show")))),
    meter(match.score, scale), trouble, pictures,
    query.shots.length > 1 && el("p", { class: "small faint" }, t("compare.first"))), { wide: true });
};
