/** Light or dark: on the page the system's choice until the visitor makes another, elsewhere what the host has. */

import { keepText, keptText } from './storage.js';

const KEY = 'py-attn.theme';
const dark = matchMedia('(prefers-color-scheme: dark)');

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === 'dark' : dark.matches;
}

/** @param {() => void} onChange */
export function watchTheme(onChange) {
  const kept = keptText(KEY);
  if (kept) document.documentElement.dataset.theme = kept;
  dark.addEventListener('change', onChange);
}

export function toggleTheme() {
  const theme = isDark() ? 'light' : 'dark';
  document.documentElement.dataset.theme = theme;
  keepText(KEY, theme);
}

/** The colour map whose lowest value has the theme's background: dark in a dark theme, light in a light one. @param {string} colormap @param {boolean} inTheDark */
export function themedColormap(colormap, inTheDark) {
  const base = colormap.replace(/_r$/u, '');
  return inTheDark ? base : `${base}_r`;
}

/**
 * Follows whether the page around an element is light or dark.
 * @param {Element} element
 * @param {(isDark: boolean) => void} onChange called at once, and after each change
 * @returns {() => void} ends it
 */
export function followHost(element, onChange) {
  /** @type {boolean | null} */
  let known = null;
  const look = () => {
    const now = hostIsDark(element);
    if (now !== known) onChange((known = now));
  };
  const changes = new MutationObserver(look);
  const attributes = { attributes: true };
  for (const one of [document.documentElement, document.body]) changes.observe(one, attributes);
  dark.addEventListener('change', look);
  look();
  // Style sheets of a host may come after its elements.
  const later = setTimeout(look, 500);
  return () => {
    clearTimeout(later);
    changes.disconnect();
    dark.removeEventListener('change', look);
  };
}

/** @param {Element} element */
function hostIsDark(element) {
  const { body, documentElement: root } = document;
  // JupyterLab and Notebook 7
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === 'false';
  // VS Code; its high contrast is dark unless it says otherwise
  if (/\bvscode-(light|high-contrast-light)\b/u.test(body.className)) return false;
  if (/\bvscode-(dark|high-contrast)\b/u.test(body.className)) return true;
  // marimo, and many others
  for (const one of [body, root]) {
    if (one.classList.contains('dark') || one.dataset.theme === 'dark') return true;
    if (one.classList.contains('light') || one.dataset.theme === 'light') return false;
  }
  return behindIsDark(element) ?? (/dark/u.test(getComputedStyle(root).colorScheme) && dark.matches);
}

/** Whether the first opaque background behind an element is dark; null where there is none. @param {Element} element */
function behindIsDark(element) {
  for (let at = /** @type {Element | null} */ (element); at; at = parent(at)) {
    const [red, green, blue, alpha = 1] = (getComputedStyle(at).backgroundColor.match(/[\d.]+/gu) ?? []).map(Number);
    if (blue !== undefined && alpha > 0.5) return 0.299 * red + 0.587 * green + 0.114 * blue < 128;
  }
  return null;
}

/** The element around another one, out of shadow trees too. @param {Element} element @returns {Element | null} */
function parent(element) {
  const root = element.getRootNode();
  return element.parentElement ?? (root instanceof ShadowRoot ? root.host : null);
}
