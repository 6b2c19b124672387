/** One thing at a time that the model does: begin a text, go on with it, go back in it, keep it in another cache. */

import { load } from './write-load.js';
import { choose, refresh, refreshSometimes } from './write-maps.js';
import { countOf, fieldsOf, report, samplingOf, say, setBusy } from './write-panel.js';
import { describeEnd, describeWritten } from './write-words.js';

/**
 * @typedef {import('./write-panel.js').Panel} Panel
 * @typedef {import('../types').CacheChoice} CacheChoice
 * @typedef {import('../types').Written} Written
 * @typedef {import('../types').WrittenToken} WrittenToken
 */

/** Begins a text with the prompt. @param {Panel} panel @param {number} [count] tokens to write */
export async function begin(panel, count = countOf(panel)) {
  const { api, view } = panel;
  const { prompt, chat } = fieldsOf(view);
  if (!prompt.trim()) return say(panel, 'Type a few words first: a text begins with its prompt.');
  return working(panel, async () => {
    panel.address.changed(true);
    if (!panel.kept) await prepare(panel);
    const answer = await api.start(prompt, chat);
    panel.kept = true;
    panel.unread = false;
    panel.actions.forget();
    panel.chosen = -1;
    take(panel, answer);
    panel.speech.begin(answer.prompt);
    await write(panel, count);
  });
}

/** Goes on with the text. @param {Panel} panel @param {number} count tokens to write */
export function goOn(panel, count) {
  return working(panel, async () => {
    panel.address.changed(true);
    await restore(panel);
    await write(panel, count);
  });
}

/** Reads a text that came with the address. @param {Panel} panel */
export function read(panel) {
  return working(panel, () => restore(panel), 'Reading …');
}

/** Reads the text again where Python does not have it. @param {Panel} panel */
async function restore(panel) {
  const { api, tokens, written, unread } = panel;
  if (panel.kept || !written) return;
  await prepare(panel);
  const told = tokens.slice();
  const answer = await api.restore(tokens.map(({ id }) => id), written.prompt, unread);
  Object.assign(panel, { kept: true, unread: false });
  // What an address says of a text is not believed where the model can tell.
  take(panel, { ...answer, ...(!unread && { tokens: told }), finished: written.finished });
  if (panel.chosen >= 0) panel.askAlternatives(panel.chosen);
}

/** Lets the model have the cache and the heads that are chosen. @param {Panel} panel */
async function prepare({ api, cache, heads }) {
  await api.headsOff(heads.list());
  await api.cache(cache.choice());
}

/**
 * Runs what the model does, one thing at a time, once the model is there.
 * @param {Panel} panel @param {() => Promise<void>} work @param {string} [said] meanwhile
 */
async function working(panel, work, said = 'Writing …') {
  const { follows } = panel;
  if (panel.busy) return;
  if (!panel.loaded && !(await load(panel))) return;
  // Another input may have been chosen while the model was loaded, or another address followed.
  if (!panel.entered || follows !== panel.follows) return;
  setBusy(panel, 'writing');
  panel.stopping = false;
  say(panel, said);
  panel.speech.begin(panel.tokens.length);
  try {
    await work();
    // What is gone with Python or the GPU is said elsewhere.
    if (panel.loaded) say(panel, ended(panel));
  } catch (error) {
    if (panel.loaded) report(panel, error);
  } finally {
    setBusy(panel, '');
  }
  panel.speech.tell(panel.tokens, true);
  panel.address.changed();
  if (panel.kept && follows === panel.follows) await refresh(panel, false);
}

/** Why nothing more is written. @param {Panel} panel */
function ended({ written, stopping }) {
  return (written && describeEnd(written.finished, written)) || (stopping ? 'Stopped.' : '');
}

/** Writes in short calls, between which everything else is answered. @param {Panel} panel @param {number} count */
async function write(panel, count) {
  const { api, tokens } = panel;
  const end = tokens.length + count;
  while (panel.tokens.length < end && !panel.stopping && !panel.written?.finished) {
    const before = panel.tokens.length;
    const answer = await api.next(end - before, samplingOf(panel));
    take(panel, answer);
    panel.speech.tell(panel.tokens, false);
    if (answer.length === before) return;
    void refreshSometimes(panel);
  }
}

/** Shows what has changed of the text. @param {Panel} panel @param {Written} answer */
function take(panel, answer) {
  const { tokens, text, view, cache, times } = panel;
  tokens.splice(answer.from, Infinity, ...answer.tokens);
  panel.written = answer;
  if (panel.chosen >= tokens.length) {
    panel.chosen = -1;
    panel.token.clear();
  }
  text.show(tokens, answer.from, answer.prompt);
  view.figures.textContent = describeWritten(answer);
  cache.show(answer);
  cache.showFigures(answer);
  times.reset(!panel.busy);
  panel.compare.reset(tokens.length > 1 && !panel.busy);
  panel.address.changed();
}

/** Drops tokens, and puts another one in their place. @param {Panel} panel @param {number} length that stays @param {WrittenToken} [token] */
export function back(panel, length, token) {
  return working(panel, async () => {
    panel.address.changed(true);
    await restore(panel);
    take(panel, await panel.api.back(length, token?.id ?? null));
    if (token) choose(panel, length);
  });
}

/** The call that writes just now is the last. @param {Panel} panel */
export function stop(panel) {
  panel.stopping = true;
}

/** @param {Panel} panel @param {CacheChoice} choice */
export async function changeCache(panel, choice) {
  const { api, written, cache } = panel;
  if (!panel.loaded || !panel.kept) return;
  await working(panel, async () => {
    try {
      take(panel, await api.cache(choice));
    } catch (error) {
      if (written) cache.show(written);
      throw error;
    }
  });
}

/** @param {Panel} panel @param {[layer: number, head: number][]} off */
export async function switchHeads(panel, off) {
  if (!panel.loaded) return;
  panel.compare.reset(panel.kept && panel.tokens.length > 1 && !panel.busy); // it would go on with other heads
  try {
    await panel.api.headsOff(off);
  } catch (error) {
    report(panel, error);
  }
}
