/** The layer in focus run position by position through a KV cache, with the split-KV reduction laid open. */

import { fill, h, icon, ICONS } from '../dom.js';
import { formatBytes, formatError, formatToken, formatWeight, shortError } from '../format.js';
import { latest } from '../latest.js';
import { mountCaches } from './caches.js';
import { tokenMark } from './focus.js';
import { mountVisited } from './visited.js';

const MAX_LENGTH = 4096; // what can be stepped through with a slider
const SHOWN = 256; // positions drawn one by one

/**
 * @param {HTMLElement} element
 * @param {import('../api.js').Api} api
 * @param {import('../store.js').Store} store
 */
export function mountDecode(element, api, store) {
  const capacity = h('select', { 'aria-label': 'Cache capacity', onchange: () => reopen() });
  const splits = h(
    'select',
    { 'aria-label': 'Splits', onchange: () => go(position) },
    [1, 2, 3, 4, 6, 8].map((n) => h('option', { value: String(n), selected: n === 4 }, String(n))),
  );
  const speed = h(
    'select',
    { 'aria-label': 'Speed' },
    [
      ['1200', 'slow'],
      ['500', 'normal'],
      ['120', 'fast'],
    ].map(([value, label]) => h('option', { value, selected: value === '500' }, label)),
  );
  const play = control('Play', ICONS.play, () => (playing ? pause() : start()));
  const slider = h('input', {
    type: 'range',
    min: '0',
    max: '0',
    value: '0',
    class: 'decode-slider',
    'aria-label': 'Position',
    oninput: () => {
      pause();
      go(Number(slider.value));
    },
  });
  const controls = h(
    'div',
    { class: 'decode-controls', role: 'group', 'aria-label': 'Steps' },
    control('First position', ICONS.first, () => jump(0)),
    control('Back', ICONS.back, () => jump(position - 1)),
    play,
    control('Step', ICONS.forward, () => jump(position + 1)),
    control('Last position', ICONS.last, () => jump(length - 1)),
    slider,
  );
  const now = h('p', { class: 'decode-now', role: 'status' }, ' ');
  const slots = h('ol', { class: 'slots', 'aria-label': 'Cache slots' });
  const splitBody = h('tbody');
  const combine = h('p', { class: 'combine' }, ' ');
  const visited = mountVisited(api, store);
  const caches = mountCaches(api, store);
  fill(
    element,
    h(
      'header',
      null,
      h(
        'div',
        null,
        h('h2', null, 'Decode'),
        h('p', null, 'One query at a time over a growing KVCache, causal: what a language model does for every new token.'),
      ),
      h(
        'div',
        { class: 'row-form' },
        h('label', { class: 'field' }, 'Capacity', capacity),
        h('label', { class: 'field' }, 'Splits', splits),
        h('label', { class: 'field' }, 'Speed', speed),
      ),
    ),
    controls,
    now,
    slots,
    h(
      'div',
      { class: 'decode-result' },
      h(
        'table',
        { class: 'splits' },
        h('caption', { class: 'sr-only' }, 'Partial results of the splits and how they are combined'),
        h(
          'thead',
          null,
          h(
            'tr',
            null,
            h('th', { scope: 'col' }, 'Split'),
            h('th', { scope: 'col' }, 'Positions'),
            h('th', { scope: 'col', class: 'number' }, 'its LSE'),
            h('th', { scope: 'col', class: 'number' }, 'exp(LSEₛ − LSE)'),
          ),
        ),
        splitBody,
      ),
      visited.element,
    ),
    combine,
    caches.element,
  );

  let position = 0;
  let length = 0;
  let playing = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let opened = '';
  /** @type {import('../types').DecodeStep | null} */
  let latestStep = null;

  const load = latest(
    async (/** @type {number} */ wanted) => {
      const { layer, head, sourceNumber, edit } = store.state;
      const held = Number(capacity.value);
      const key = `${sourceNumber}/${edit}/${layer}/${held}`;
      if (opened !== key) {
        await api.decodeOpen(layer, held);
        opened = key;
      }
      const step = await api.decodeStep(wanted, head, Number(splits.value));
      if (store.state.sourceNumber !== sourceNumber) return;
      draw(step);
      if (playing && position === wanted) {
        if (wanted + 1 < length) timer = setTimeout(() => jump(wanted + 1, true), Number(speed.value));
        else pause();
      }
    },
    (error) => {
      opened = '';
      pause();
      now.textContent = `Could not be decoded: ${shortError(error)}`;
    },
  );

  /** @param {number} to */
  function go(to) {
    if (!length || length > MAX_LENGTH) return;
    position = Math.min(Math.max(to, 0), length - 1);
    slider.value = String(position);
    load(position);
  }

  /** @param {number} to @param {boolean} [played] */
  function jump(to, played = false) {
    if (!played) pause();
    go(to);
  }

  function start() {
    playing = true;
    fill(play, icon(ICONS.pause));
    play.title = 'Pause';
    play.setAttribute('aria-label', 'Pause');
    go(position + 1 >= length ? 0 : position + 1);
  }

  function pause() {
    if (playing && latestStep) caches.follow(latestStep.position, latestStep.capacity);
    playing = false;
    clearTimeout(timer);
    fill(play, icon(ICONS.play));
    play.title = 'Play';
    play.setAttribute('aria-label', 'Play');
  }

  function reopen() {
    pause();
    go(position);
  }

  /** @param {import('../types').DecodeStep} step */
  function draw(step) {
    const { source, layer, head } = store.state;
    if (!source) return;
    fill(
      now,
      'Query ',
      tokenMark(source.tokens[step.position], step.position),
      ` at position ${step.position} · cache ${step.length} of ${step.capacity}, ${formatBytes(step.nbytes)} · layer ${layer + 1}, head ${head + 1}`,
    );
    drawSlots(step, source.tokens);
    void visited.add(step);
    latestStep = step;
    if (!playing) caches.follow(step.position, step.capacity);
    const top = Math.max(...step.splits.map(({ factor }) => factor));
    fill(
      splitBody,
      step.splits.map((split, i) =>
        h(
          'tr',
          { style: { '--share': split.factor / (top || 1) } },
          h('th', { scope: 'row' }, h('i', { class: 'swatch', style: { '--split': i } }), String(i + 1)),
          h('td', null, split.stop > split.start ? `${split.start} – ${split.stop - 1}` : 'none'),
          h('td', { class: 'number' }, Number.isFinite(split.lse) ? split.lse.toFixed(4) : '−∞'),
          h('td', { class: 'number factor' }, formatWeight(split.factor)),
        ),
      ),
    );
    fill(
      combine,
      h('span', { class: 'formula' }, `LSE = ln Σ exp(LSEₛ) = ${step.lse.toFixed(4)}`),
      h('span', { class: 'formula' }, 'out = Σ exp(LSEₛ − LSE) · outₛ'),
      h(
        'span',
        { class: 'muted small' },
        `Combined by hand it differs by ${formatError(step.combined)} from the reduce kernel, which is ${formatError(step.error)} away from float64.`,
      ),
    );
    element.dataset.position = String(step.position);
  }

  /** @param {import('../types').DecodeStep} step @param {string[]} tokens */
  function drawSlots(step, tokens) {
    const many = step.capacity > SHOWN;
    const shown = Math.min(step.capacity, SHOWN);
    slots.classList.toggle('many', many || step.capacity > 64);
    const top = Math.max(...step.weights) || 1;
    const items = Array.from({ length: shown }, (_, slot) => {
      // In a ring the newest position takes the slot of the one that left.
      const at = many ? step.first + Math.max(0, step.length - shown) + slot : positionIn(slot, step);
      const weight = at === null || at > step.position ? null : step.weights[at - step.first];
      if (at === null || weight === null || weight === undefined) {
        return h('li', { class: 'slot empty', 'aria-label': 'empty' }, h('span', null, ' '));
      }
      const split = step.splits.findIndex(({ start: a, stop: b }) => at >= a && at < b);
      return h(
        'li',
        {
          class: at === step.position ? 'slot new' : 'slot',
          title: `position ${at}, weight ${formatWeight(weight)}`,
          style: { '--share': weight / top, '--split': split },
        },
        h('bdi', { dir: 'auto' }, formatToken(tokens[at])),
        h('span', { class: 'slot-weight' }, weight.toFixed(3)),
      );
    });
    fill(slots, items);
  }

  store.on(['sourceNumber'], ({ source }) => {
    pause();
    opened = '';
    if (!source) return;
    length = source.length;
    slider.max = String(length - 1);
    const choices = [...new Set([length, Math.ceil(length / 2), Math.min(8, length)])].filter((n) => n > 0);
    fill(
      capacity,
      choices.map((n) => h('option', { value: String(n) }, n === length ? `${n} (all)` : `${n} (ring)`)),
    );
    caches.element.hidden = length > MAX_LENGTH;
    if (length > MAX_LENGTH) {
      now.textContent = `Decoding is shown up to ${MAX_LENGTH} positions.`;
      fill(slots);
      fill(splitBody);
      fill(combine, ' ');
    } else go(Math.min(length - 1, Math.max(0, Math.floor(length / 2))));
  });
  store.on(['edit', 'layer', 'head'], () => store.state.source && go(position));
}

/** The position that lies in a slot of the ring. @param {number} slot @param {import('../types').DecodeStep} step */
function positionIn(slot, { position, capacity, first }) {
  const at = position - ((((position - slot) % capacity) + capacity) % capacity);
  return at >= first ? at : null;
}

/** @param {string} label @param {string} path @param {() => void} onClick */
function control(label, path, onClick) {
  return h(
    'button',
    { class: 'button icon compact', type: 'button', 'aria-label': label, title: label, onclick: onClick },
    icon(path),
  );
}
