// Light, dark, or as the system has it.

const KEY = "cfnade-theme";
const ORDER = ["auto", "light", "dark"];

export function useTheme(button) {
  let theme = localStorage.getItem(KEY) ?? "auto";
  const apply = () => {
    if (!ORDER.includes(theme)) theme = "auto";
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Colours: ${theme}`;
  };
  button.addEventListener("click", () => {
    theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
    localStorage.setItem(KEY, theme);
    apply();
  });
  apply();
}
