// Which file belongs to which modality and shot, by its name.

const SEPARATOR = /[^a-z0-9]+/;

/** The modality that a file's path names ("NIR/0001.jpg", "0001_tir.png"), and the path without it. */
export const modalityOf = (path, modalities) => {
  const words = path.toLowerCase().split(SEPARATOR);
  const name = modalities.find((modality) => words.includes(modality.toLowerCase()));
  return { name: name ?? null, rest: words.filter((word) => word !== name).join("_") };
};

/**
 * Puts files into the shots that are there, and into further ones where they are full. A file that names its
 * modality goes there, together with those whose names are otherwise the same; the others fill what is free in order.
 */
export const sortFiles = (files, shots, modalities) => {
  const result = shots.map((shot) => ({ ...shot }));
  const started = new Map();
  const open = (free) => {
    const found = result.find(free);
    if (found) return found;
    result.push({});
    return result[result.length - 1];
  };
  for (const file of files) {
    const { name, rest } = modalityOf(file.webkitRelativePath || file.name, modalities);
    if (name === null) {
      const shot = open((each) => modalities.some((modality) => !each[modality]));
      shot[modalities.find((modality) => !shot[modality])] = file;
      continue;
    }
    let shot = started.get(rest);
    if (!shot || shot[name]) {
      const taken = new Set(started.values());
      shot = open((each) => !each[name] && !taken.has(each));
      started.set(rest, shot);
    }
    shot[name] = file;
  }
  return result;
};
