/** Which cache the text is kept in, and how fast the model writes over it. */

import { fill, h } from '../dom.js';
import { formatBytes, formatCount, formatTime } from '../format.js';
import { field, select, tableCaption } from './elements.js';
import { CONTEXT, DTYPES, formatRate, formatSeconds } from './write-words.js';

/** @typedef {import('../types').CacheChoice} CacheChoice */

const SIZES = [64, 128, 256, 512, 1024];

/** @param {(choice: CacheChoice) => void} onChange */
export function mountCache(onChange) {
  const changed = () => {
    kept.disabled = size.value === 'all';
    onChange(choice());
  };
  const dtype = select('Cache dtype', DTYPES, 'float32', changed);
  const sizes = SIZES.map((n) => /** @type {[string, string]} */ ([String(n), `ring of ${formatCount(n)}`]));
  const size = select('Cache size', [['all', `all ${formatCount(CONTEXT)}`], ...sizes], 'all', changed);
  const kept = select('First tokens kept', [['0', 'none'], ['4', 'first 4']], '4', changed);
  kept.disabled = true;
  const figures = h('dl', { class: 'write-figures' });
  const element = h(
    'section',
    { class: 'write-cache', 'aria-label': 'Cache' },
    h('h3', null, 'Cache'),
    h('p', { class: 'muted small' }, 'Keys and values of what was read. A ring drops its oldest tokens when it is full, and can keep the first ones.'),
    h('div', { class: 'row-form' }, field('Numbers', dtype), field('Size', size), field('Kept', kept)),
    figures,
  );

  /** @returns {CacheChoice} */
  function choice() {
    const ring = size.value !== 'all';
    return { cache: dtype.value, context: ring ? Number(size.value) : CONTEXT, ring, sink_tokens: ring ? Number(kept.value) : 0 };
  }

  return {
    element,
    choice,
    /** Shows what the model has, which may not be what was asked for. @param {import('../types').CacheState} state */
    show({ cache, ring, capacity, sinkTokens }) {
      dtype.value = cache;
      size.value = ring ? String(capacity) : 'all';
      if (ring) kept.value = String(sinkTokens);
      kept.disabled = !ring;
    },
    /** @param {import('../types').Written} written */
    showFigures({ bytes, capacity, ring, length, timing }) {
      const held = Math.min(length, capacity);
      const rows = /** @type {[string, string][]} */ ([
        ['Memory', formatBytes(bytes)],
        ['Tokens held', `${formatCount(held)} of ${formatCount(capacity)}${ring && length > capacity ? `, ${formatCount(length - capacity)} dropped` : ''}`],
        ['Speed', timing.rate ? formatRate(timing.rate) : '·'],
        ['First token', timing.firstToken == null ? '·' : formatSeconds(timing.firstToken)],
      ]);
      fill(figures, rows.map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, value))));
    },
    /** @param {boolean} busy */
    setBusy(busy) {
      dtype.disabled = size.disabled = busy;
      kept.disabled = busy || size.value === 'all';
    },
  };
}

/** GPU time a token, by kernel family. */
export function mountTimes() {
  const body = h('tbody');
  const note = h('p', { class: 'muted small' }, ' ');
  const element = h(
    'section',
    { class: 'write-times', 'aria-label': 'GPU time' },
    h('h3', null, 'GPU time a token'),
    note,
    h('table', null, tableCaption('GPU time a token by kernel family'), body),
  );

  return {
    element,
    /** @param {import('../types').WriteTiming} timing @param {{ software: boolean } | null} info */
    show({ gpu, clock }, info) {
      const entries = Object.entries(gpu);
      const total = entries.reduce((sum, [, us]) => sum + us, 0);
      note.textContent = describeClock(entries.length > 0, clock, info);
      fill(
        body,
        entries.map(([name, us]) => timeLine(name, us, total)),
        entries.length > 0 && timeLine('together', total, 0),
      );
    },
  };
}

/** @param {string} name @param {number} us @param {number} total */
function timeLine(name, us, total) {
  return h(
    'tr',
    { style: { '--share': total ? us / total : 0 } },
    h('th', { scope: 'row' }, name),
    h('td', { class: 'number' }, formatTime(us)),
    h('td', { class: 'number muted' }, total ? `${Math.round((100 * us) / total)} %` : ''),
  );
}

/** @param {boolean} any @param {string} clock @param {{ software: boolean } | null} info */
function describeClock(any, clock, info) {
  if (!any) return 'Appears once the model has written.';
  const by = clock === 'gpu' ? 'By GPU timestamps.' : 'By wall clock, as this adapter has no timestamps.';
  return info?.software ? `${by} This is a software adapter: the CPU does the work, so the times say nothing about a GPU.` : by;
}
