// Light and dark: the system's choice until the button is pressed.

const root = document.documentElement;
const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);

/** Lets a button switch between light and dark, and remembers the choice. */
export const startTheme = (button) => {
  const saved = localStorage.getItem("theme");
  if (saved === "light" || saved === "dark") root.dataset.theme = saved;
  const show = () => button.setAttribute("aria-pressed", String(isDark()));
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
    show();
  });
  system.addEventListener("change", show);
  show();
};
