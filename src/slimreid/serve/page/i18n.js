// Everything the page says, in the language of the reader. Words are in words/*.js, one table per language.

import { data } from "./dom.js";
import en from "./words/en.js";
import zh from "./words/zh.js";

export const LANGUAGES = { en: { name: "English", tag: "en", words: en }, zh: { name: "中文", tag: "zh-CN", words: zh } };

let current = "en";
const listeners = [];

/** The language in use: a key of LANGUAGES. */
export const language = () => current;

/** Calls `listener` whenever the language changes. */
export const onLanguage = (listener) => listeners.push(listener);

/** Words of the language in use for a key; `{name}` is replaced. `n` chooses between singular and plural. */
export const t = (key, values = {}) => parts(key, values).map((part) => (part instanceof Node ? part.textContent : part)).join("");

/** The same as nodes, for values that must not be translated: `{name}` may be a node or text. */
export const parts = (key, values = {}) => {
  const { words, tag } = LANGUAGES[current];
  let text = words[key];
  if (text === undefined) throw new Error(`no words for ${key}`);
  if (typeof text === "object") text = text[new Intl.PluralRules(tag).select(values.n)] ?? text.other;
  return text.split(/(\{\w+\})/).filter(Boolean).map((piece) => {
    const name = /^\{(\w+)\}$/.exec(piece)?.[1];
    if (name === undefined) return piece;
    const value = values[name];
    return typeof value === "number" ? number(value) : value;
  });
};

/** Whether there are words for a key. */
export const has = (key) => key in LANGUAGES[current].words;

/** `t` where the language has words for the key; otherwise the text as it came, marked as data. */
export const translated = (key, text) => (has(key) ? t(key) : data(text));

/** A number as the language writes it. */
export const number = (value, digits = 0) =>
  new Intl.NumberFormat(LANGUAGES[current].tag, { minimumFractionDigits: digits, maximumFractionDigits: digits }).format(value);

/** A share as a percentage with as many digits as it needs. */
export const percent = (value) =>
  new Intl.NumberFormat(LANGUAGES[current].tag, { style: "percent", maximumSignificantDigits: 2 }).format(value);

/** A moment in seconds since 1970, in the reader's own time zone. */
export const moment = (seconds) =>
  new Intl.DateTimeFormat(LANGUAGES[current].tag, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" }).format(new Date(1000 * seconds));

const choose = (name) => {
  current = name in LANGUAGES ? name : "en";
  document.documentElement.lang = LANGUAGES[current].tag;
};

/** Writes the words of everything in the page that has `data-t` (text) or `data-t-label` (accessible name). */
export const relabel = (root = document) => {
  for (const node of root.querySelectorAll("[data-t]")) node.textContent = t(node.dataset.t);
  for (const node of root.querySelectorAll("[data-t-label]")) node.setAttribute("aria-label", t(node.dataset.tLabel));
};

/** Starts with the saved language, or the browser's; lets a select change it. */
export const startLanguage = (select) => {
  choose(localStorage.getItem("language") ?? (navigator.language.startsWith("zh") ? "zh" : "en"));
  select.value = current;
  select.addEventListener("change", () => {
    choose(select.value);
    localStorage.setItem("language", current);
    relabel();
    for (const listener of listeners) listener();
  });
};
