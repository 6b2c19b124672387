/** The parts of a view, which an element or a widget may show in part. */

/** @typedef {'overview' | 'focus' | 'links' | 'compare' | 'kernel'} Part */

/** In the order in which they stand. @type {readonly Part[]} */
export const PARTS = ['overview', 'focus', 'links', 'compare', 'kernel'];

/**
 * The parts that somebody asks for; all of them where no known one is named.
 * @param {string | readonly string[] | null | undefined} given names, in a text with spaces or commas between them
 * @returns {{ parts: readonly Part[], unknown: string[] }}
 */
export function readParts(given) {
  const names = typeof given === 'string' ? given.split(/[\s,]+/u).filter(Boolean) : [...(given ?? [])];
  const parts = PARTS.filter((part) => names.includes(part));
  const unknown = names.filter((name) => !PARTS.includes(/** @type {Part} */ (name)));
  return { parts: parts.length ? parts : PARTS, unknown };
}

/** What is to be said about names that are no part; '' for none. @param {string[]} unknown */
export function aboutUnknown(unknown) {
  if (!unknown.length) return '';
  const names = unknown.map((name) => `“${name}”`).join(', ');
  return `parts: ${names} ${unknown.length > 1 ? 'are' : 'is'} not known; the parts are ${PARTS.join(', ')}.`;
}
