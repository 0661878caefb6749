// Light or dark theme: that of the system, until the button overrides it.
const root = document.documentElement;
const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = [];
const colours = new Map();
let chosen = null;

export const isDark = () => (chosen ?? (system.matches ? "dark" : "light")) === "dark";

/** Call `draw` whenever colours change. */
export const onTheme = (draw) => listeners.push(draw);

/** A colour of the style sheet, cached: drawing fifty points reads colours two hundred times. */
export function colour(name) {
  if (!colours.has(name)) colours.set(name, getComputedStyle(root).getPropertyValue(`--${name}`).trim());
  return colours.get(name);
}

/** Colours of attention heads, distinguishable with colour-vision deficiencies; lighter on a dark background. */
export const headColours = () =>
  isDark()
    ? ["#56b4e9", "#ff9b54", "#35c99a", "#e59ac4", "#f0c64a", "#b7a6ff", "#9ad1d4", "#ff8a8a"]
    : ["#0072b2", "#d55e00", "#00795a", "#b0578d", "#a87400", "#6a51c9", "#3a7d80", "#b3261e"];

function apply() {
  root.dataset.theme = isDark() ? "dark" : "light";
  colours.clear();
  const button = document.getElementById("theme");
  button.textContent = isDark() ? "Light" : "Dark";
  button.setAttribute("aria-label", isDark() ? "Switch to the light theme" : "Switch to the dark theme");
  for (const draw of listeners) draw();
}

export function startTheme() {
  document.getElementById("theme").addEventListener("click", () => {
    chosen = isDark() ? "light" : "dark";
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}
