// One slot per modality and shot: choose, drop or paste images.

import { el, focusOn, icon } from "../dom.js";
import { t } from "../i18n.js";
import { modalities, query } from "../state.js";
import { sortFiles } from "../files.js";
import { modalityText } from "./names.js";
import { filePicture, patchShade } from "./pictures.js";

const ACCEPT = "image/*,.tif,.tiff,.bmp,.webp";

const emptySlot = (name, number, take) => {
  const input = el("input", { type: "file", accept: ACCEPT, class: "spoken-input" });
  input.addEventListener("change", () => input.files.length && take(number, name, input.files[0]));
  return el("label", { class: "slot empty" }, input, icon("image"), el("span", {}, modalityText(name)),
    query.shots.length > 1 && el("span", { class: "spoken" }, " ", t("shot", { n: number + 1 })));
};

const filledSlot = (name, number, file, drop) => {
  const label = t("picture.query", { modality: modalityText(name), n: number + 1 });
  const grid = query.showPatches ? query.patches?.get(query.shots[number])?.[name] : null;
  const picture = filePicture(file, label);
  if (grid) picture.append(patchShade(grid));
  return el("div", { class: "slot filled" },
    picture,
    el("span", { class: "caption" }, modalityText(name)),
    el("button", { type: "button", class: "remove", "aria-label": t("slot.remove", { what: label }), onclick: () => drop(number, name) }, icon("cross")));
};

/** The slots of all shots; `changed` is called after images came or went. */
export const slots = (changed) => {
  const zone = el("div", { class: "zone" });
  const place = (focus) => {
    zone.replaceChildren(...query.shots.map((shot, number) => el("div", { class: "shot", role: "group", "aria-label": t("shot", { n: number + 1 }) },
      modalities().map((name) => {
        const slot = shot[name] ? filledSlot(name, number, shot[name], drop) : emptySlot(name, number, take);
        slot.dataset.shot = number;
        slot.dataset.modality = name;
        return slot;
      }))));
    zone.style.setProperty("--columns", modalities().length);
    if (focus) focusOn(zone.querySelector(`[data-shot="${focus.number}"][data-modality="${focus.name}"] :is(button, input)`));
  };
  const take = (number, name, file) => {
    query.shots[number][name] = file;
    place({ number, name });
    changed();
  };
  const drop = (number, name) => {
    delete query.shots[number][name];
    if (query.shots.length > 1 && !Object.keys(query.shots[number]).length) query.shots.splice(number, 1);
    place({ number: Math.min(number, query.shots.length - 1), name });
    changed();
  };
  const takeMany = (files) => {
    const images = [...files].filter((file) => file.type.startsWith("image/") || /\.(tiff?|bmp|webp|png|jpe?g)$/i.test(file.name));
    if (!images.length) return;
    query.shots = sortFiles(images, query.shots, modalities());
    place();
    changed();
  };
  dropping(zone, takeMany, take);
  place();
  return { zone, place, takeMany, addShot: () => { query.shots.push({}); place({ number: query.shots.length - 1, name: modalities()[0] }); } };
};

const dropping = (zone, takeMany, take) => {
  const mark = (event, over) => {
    event.preventDefault();
    zone.classList.toggle("over", over);
    for (const slot of zone.querySelectorAll(".slot")) slot.classList.toggle("over", over && slot.contains(event.target));
  };
  zone.addEventListener("dragover", (event) => mark(event, true));
  zone.addEventListener("dragleave", (event) => mark(event, false));
  zone.addEventListener("drop", (event) => {
    mark(event, false);
    const slot = event.target.closest(".slot");
    const files = event.dataTransfer.files;
    if (slot && files.length === 1) take(Number(slot.dataset.shot), slot.dataset.modality, files[0]);
    else takeMany(files);
  });
};
