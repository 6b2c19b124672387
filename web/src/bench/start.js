/** How long the main page takes to its first map, in a frame of this page: with an empty cache, and again with a full one. */

import { ASSET_CACHE, createAssets } from '../assets.js';
import { forgetFiles } from '../kept-files.js';
import { NOTES_CACHE } from '../notes.js';
import { INTERPRETER } from '../runtime/boot.js';

/** @typedef {import('./types').Start} Start */

const TIMEOUT_MS = 90_000;
/** By then the page has done what it does after its first map, and the next visit begins on an idle machine. */
const SETTLE_MS = 4000;
const LAST = 'py-attn:first-map';
const PREFIX = 'py-attn:';

/**
 * @param {HTMLElement} place where the frame is shown meanwhile
 * @param {import('./types').Visit} visit
 * @returns {Promise<Start>}
 */
export async function measureStart(place, visit) {
  if (visit === 'first') await forget();
  const card = /** @type {HTMLElement} */ (place.closest('section'));
  card.hidden = false;
  const frame = document.createElement('iframe');
  frame.title = 'The page, starting';
  frame.src = new URL(visit === 'profiled' ? './?profile' : '.', document.baseURI).href;
  place.replaceChildren(frame);
  try {
    const marks = await marksOf(frame);
    const profile = await /** @type {any} */ (frame.contentWindow).pyAttn.profile();
    await new Promise((done) => setTimeout(done, SETTLE_MS));
    return { visit, marks, profile };
  } finally {
    place.replaceChildren();
  }
}

/** Empties what a visit keeps. */
async function forget() {
  for (const name of [ASSET_CACHE, NOTES_CACHE]) await caches.delete(name);
  await forgetFiles();
  // The browser keeps machine code with the response that it was made from; a new response has none.
  const interpreter = await createAssets(document.baseURI).address(INTERPRETER);
  await (await fetch(interpreter, { cache: 'reload' })).arrayBuffer();
}

/** @param {HTMLIFrameElement} frame @returns {Promise<Record<string, number>>} */
async function marksOf(frame) {
  const end = performance.now() + TIMEOUT_MS;
  while (performance.now() < end) {
    await new Promise((done) => setTimeout(done, 50));
    const entries = frame.contentWindow?.performance.getEntriesByType('mark') ?? [];
    const found = Object.fromEntries(
      entries.filter(({ name }) => name.startsWith(PREFIX)).map(({ name, startTime }) => [name.slice(PREFIX.length), startTime]),
    );
    if (LAST.slice(PREFIX.length) in found) return found;
  }
  throw new Error(`the page showed no map within ${TIMEOUT_MS / 1000} s`);
}
