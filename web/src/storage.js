/** Texts that outlive a reload. Where the browser forbids storage, they are forgotten with the page. */

/** @typedef {'localStorage' | 'sessionStorage'} Area */

/** @param {string} name @param {string} text '' where there is none any more @param {Area} [area] */
export function keepText(name, text, area = 'localStorage') {
  try {
    if (text) globalThis[area].setItem(name, text);
    else globalThis[area].removeItem(name);
  } catch {
    // Even looking at the storage throws where it is forbidden.
  }
}

/** The text that was kept, or ''. @param {string} name @param {Area} [area] */
export function keptText(name, area = 'localStorage') {
  try {
    return globalThis[area].getItem(name) ?? '';
  } catch {
    return '';
  }
}
