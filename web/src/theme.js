/** Light or dark: the system's choice until the visitor makes another. */

const KEY = 'py-attn.theme';
const dark = matchMedia('(prefers-color-scheme: dark)');

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === 'dark' : dark.matches;
}

/** @param {() => void} onChange */
export function watchTheme(onChange) {
  const kept = read();
  if (kept) document.documentElement.dataset.theme = kept;
  dark.addEventListener('change', onChange);
}

export function toggleTheme() {
  const theme = isDark() ? 'light' : 'dark';
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // Without storage the choice holds for this visit.
  }
}

function read() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}
