/** The sentence in the page's address, so that it survives a reload and a link to it can be shared. */

const MAX_LENGTH = 2000; // longer texts are not kept

/** The address' fragment for a text; empty for one that is not kept. @param {string} text */
export function fragmentOf(text) {
  return text && text.length <= MAX_LENGTH ? `#text=${encodeURIComponent(text)}` : '';
}

/** The text of a fragment, empty if it has none. @param {string} fragment */
export function textOf(fragment) {
  const match = /^#text=(.*)$/u.exec(fragment);
  try {
    return match ? decodeURIComponent(match[1]) : '';
  } catch {
    return ''; // cut in the middle of a character
  }
}

/** @param {string} text */
export function keepInAddress(text) {
  history.replaceState(null, '', fragmentOf(text) || location.pathname + location.search);
}
