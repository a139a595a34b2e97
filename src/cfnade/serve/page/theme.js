// Light, dark, or as the system has it.

import { keep, recall } from "./storage.js";

const KEY = "cfnade-theme";
const ORDER = ["auto", "light", "dark"];

export function useTheme(button) {
  let theme = recall("localStorage", KEY) ?? "auto";
  const apply = () => {
    if (!ORDER.includes(theme)) theme = "auto";
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Colours: ${theme}`;
  };
  button.addEventListener("click", () => {
    theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
    keep("localStorage", KEY, theme);
    apply();
  });
  apply();
}
