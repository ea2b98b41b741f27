// Light or dark: as the system has it, or as the reader chose.

export type Theme = "system" | "light" | "dark";

const KEY = "postroad-theme";

export function chosenTheme(): Theme {
  const kept = readKept();
  return kept === "light" || kept === "dark" ? kept : "system";
}

function readKept(): string | null {
  try {
    return window.localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

export function applyTheme(theme: Theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export function chooseTheme(theme: Theme) {
  try {
    if (theme === "system") window.localStorage.removeItem(KEY);
    else window.localStorage.setItem(KEY, theme);
  } catch {
    // It lasts as long as the page then.
  }
  applyTheme(theme);
}
