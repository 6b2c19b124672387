/** The panel's state in the page's address: written there after every change, and followed where an address leads. */

import { choose, h } from '../dom.js';
import { formatBytes, formatCount } from '../format.js';
import { latest } from '../latest.js';
import { fieldsOf, idle, say, setBusy } from './write-panel.js';
import { read, stop } from './write-session.js';
import { checkState, packState, SHAPE, unpackState } from './write-state.js';
import { MODEL_BYTES } from './write-words.js';

/**
 * @typedef {import('./write-panel.js').Panel} Panel
 * @typedef {import('./write-state.js').WriteState} WriteState
 */

/** @param {Panel} panel */
export function keepInAddress(panel) {
  const { store } = panel;
  const first = JSON.stringify(stateOf(panel));
  let packed = '';
  let isStep = false;

  const publish = latest(async () => {
    const { follows } = panel;
    const state = stateOf(panel);
    // Too much to be packed: the address goes on without it.
    const now = JSON.stringify(state) === first ? '' : await packState(state).catch(() => '');
    // Another address that waits to be followed, behind one whose text is still being read, stays.
    const waits = store.state.writing.packed !== packed;
    if (follows !== panel.follows || waits || now === packed) return;
    packed = now;
    store.set({ writing: { packed, begun: store.state.writing.begun + Number(isStep) } });
    isStep = false;
  }, () => {});

  const follow = latest(async () => {
    const asked = store.state.writing.packed;
    if (asked === packed) return;
    panel.follows++;
    stop(panel);
    try {
      const state = asked ? await unpackState(asked) : checkState(first);
      await idle(panel);
      packed = asked;
      // What is being packed of the text before, which may have ended meanwhile, is over too.
      panel.follows++;
      show(panel, state);
    } catch {
      panel.actions.unclear();
      packed = asked;
      publish(null); // what the panel has takes the place of what means nothing
    }
    await resume(panel);
  }, () => {});

  store.on(['writing'], () => follow(null));
  follow(null);
  return {
    /** The panel has changed. @param {boolean} [step] whether Back leads to what was before */
    changed(step = false) {
      isStep ||= step;
      publish(null);
    },
  };
}

/** @param {Panel} panel @returns {WriteState} */
function stateOf(panel) {
  const { view, cache, heads, over, tokens, written } = panel;
  return {
    ...fieldsOf(view),
    cache: cache.choice(),
    off: heads.list().map(([layer, head]) => layer * SHAPE.heads + head),
    over,
    ids: tokens.map(({ id }) => id),
    texts: tokens.map(({ text }) => text),
    given: written?.prompt ?? 0,
    finished: written?.finished ?? '',
  };
}

/** @param {Panel} panel @param {WriteState} state */
function show(panel, { prompt, chat, numbers, cache, off, over, ids, texts, given, finished }) {
  const { view } = panel;
  view.prompt.value = prompt;
  choose(view.chat, chat ? 'chat' : 'plain');
  Object.values(view.sampling).forEach(({ input }, i) => (input.value = numbers[i] === null ? '' : String(numbers[i])));
  const held = { cache: cache.cache, ring: cache.ring, capacity: cache.context, sinkTokens: cache.sink_tokens, room: 0, bytes: 0 };
  panel.cache.show(held);
  panel.heads.show(off.map((index) => [Math.floor(index / SHAPE.heads), index % SHAPE.heads]));
  panel.over = over;
  choose(view.colours, over);
  const tokens = ids.map((id, i) => ({ id, text: texts[i] }));
  panel.tokens.splice(0, Infinity, ...tokens);
  panel.written = tokens.length ? { ...held, from: 0, tokens, length: tokens.length, prompt: given, finished, timing: {} } : null;
  Object.assign(panel, { kept: false, unread: tokens.length > 0, chosen: -1 });
  panel.token.clear();
  panel.text.colour(null);
  panel.text.show(tokens, 0, given);
  panel.text.choose(-1);
  view.figures.textContent = tokens.length ? `${formatCount(given)} tokens given, ${formatCount(tokens.length - given)} written` : ' ';
  say(panel, '');
  setBusy(panel, '');
}

/** Lets the model read a text that came with the address, or offers that where it is a large download. @param {Panel} panel */
export async function resume(panel) {
  if (!panel.unread || !panel.entered || panel.busy || !panel.store.state.info?.webgpu) return undefined;
  if (panel.loaded || (await panel.actions.hasModel())) return read(panel);
  say(panel, 'This text is as it was written. The maps below show it once the model has read it.');
  const button = h('button', { class: 'button compact', type: 'button', onclick: () => void read(panel) }, `Load SmolLM2 (${formatBytes(MODEL_BYTES)}) and read`);
  panel.view.message.append(' ', button);
  return undefined;
}
