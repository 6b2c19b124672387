/** What the maps of the page show of the text that is written, and what of it is chosen or pointed at. */

import { byToken, positionOf, tokenAt } from '../reading.js';
import { report } from './write-panel.js';
import { describeLooking } from './write-words.js';

/** @typedef {import('./write-panel.js').Panel} Panel */

const REFRESH_MS = 250; // between two versions of the maps while the text grows

/** While the text grows, the maps follow when they have shown the last version. @param {Panel} panel */
export async function refreshSometimes(panel) {
  const { store } = panel;
  const { source, sourceNumber, painted } = store.state;
  const waits = source?.kind === 'written' && source.growing && painted !== sourceNumber;
  if (waits || performance.now() - panel.refreshed < REFRESH_MS) return;
  await refresh(panel, true);
}

/** Makes the text the source of all maps. @param {Panel} panel @param {boolean} growing */
export async function refresh(panel, growing) {
  if (!panel.entered || (growing && panel.refreshing)) return;
  panel.refreshing = true;
  try {
    const source = await panel.api.view(growing);
    // The newest token is in focus unless the visitor has chosen one.
    const query = panel.chosen < 0 ? source.length - 1 : Math.min(positionOf(source, panel.chosen), source.length - 1);
    if (!panel.entered || !panel.actions.open(source, { query })) return;
    // The token that the address asks for is chosen, unless it is the newest.
    const asked = panel.store.state.query;
    if (asked < source.length - 1) choose(panel, tokenAt(source, asked));
  } catch (error) {
    if (!growing) report(panel, error);
  } finally {
    panel.refreshing = false;
    panel.refreshed = performance.now();
  }
}

/** Moves the row in focus of all maps to a token. @param {Panel} panel @param {number} index */
export function look({ store }, index) {
  const { source } = store.state;
  if (source?.kind === 'written' && index >= 0) store.set({ query: Math.min(positionOf(source, index), source.length - 1) });
}

/** Another token is chosen, -1 for the newest. @param {Panel} panel @param {number} index */
export function choose(panel, index) {
  panel.chosen = index;
  panel.text.choose(index);
  panel.askAlternatives(index);
  look(panel, index < 0 ? panel.tokens.length - 1 : index);
}

/** @param {Panel} panel @param {number} index */
export async function showAlternatives({ api, token, tokens, kept, written }, index) {
  if (!tokens[index] || !written) return token.clear();
  return token.show(tokens[index], index, kept && index > 0 ? await api.alternatives(index) : []);
}

/** Colours the text by what the token in focus attends to. @param {Panel} panel */
export function colour(panel) {
  const { source, query, layer, head } = panel.store.state;
  if (!panel.entered || source?.kind !== 'written') return panel.text.colour(null);
  panel.view.looking.textContent = describeLooking(panel.over, layer, head);
  return panel.askColours(query);
}

/** @param {Panel} panel @param {number} query */
export async function showColours(panel, query) {
  const { maps, store, over } = panel;
  const { layer, head, source, sourceNumber } = store.state;
  const { weights } = await maps.row(layer, head, query, 'weights', over);
  if (source && store.state.sourceNumber === sourceNumber && store.state.query === query) {
    panel.text.colour(byToken(source, weights), tokenAt(source, query));
  }
}
