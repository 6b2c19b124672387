/** Loading the model's weights, and what is said when that is cancelled or fails, or when the model is lost later. */

import { shortError } from '../format.js';
import { label, say, setBusy } from './write-panel.js';
import { describeFailure, MODEL_BYTES } from './write-words.js';

/** @typedef {import('./write-panel.js').Panel} Panel */

/** The model has gone, with Python or the GPU. @param {Panel} panel @param {string} what happened */
export function lost(panel, what) {
  Object.assign(panel, { loaded: false, kept: false, stopping: true });
  panel.times.reset(false);
  panel.compare.reset(false);
  label(panel);
  if (panel.tokens.length) say(panel, `${what} The text is kept: “Go on” loads the model again and rebuilds its cache.`);
}

/** @param {Panel} panel @returns {Promise<boolean>} whether the model is there */
export async function load(panel) {
  const { view, actions, cache } = panel;
  setBusy(panel, 'loading');
  view.loading.element.hidden = false;
  view.loading.show('weights', 0, MODEL_BYTES);
  say(panel, '');
  try {
    panel.loaded = await actions.loadModel(cache.choice(), view.loading.show);
    if (!panel.loaded) say(panel, 'Loading was cancelled; press the button to load again.');
  } catch (error) {
    const detail = shortError(error);
    say(panel, describeFailure(detail), 'bad', detail);
  } finally {
    view.loading.element.hidden = true;
    setBusy(panel, '');
  }
  return panel.loaded;
}
