/** Which cache the text is kept in, and how fast the model writes over it. */

import { fill, h } from '../dom.js';
import { formatBytes, formatCount, formatTime, isLoss, shortError } from '../format.js';
import { field, select, tableCaption } from './elements.js';
import { CONTEXT, DTYPES, formatRate, formatSeconds, SHORT, SIZES } from './write-words.js';

/** @typedef {import('../types').CacheChoice} CacheChoice */

/** Sizes of caches in which the text ends when they are full; all other sizes are rings. */
const ENDING = /** @type {Record<string, number>} */ ({ all: CONTEXT, short: SHORT });
const TIMES = 'One token is processed once more, with a timestamp around each kernel.';

/** @param {(choice: CacheChoice) => void} onChange */
export function mountCache(onChange) {
  const changed = () => {
    kept.disabled = size.value in ENDING;
    onChange(choice());
  };
  const dtype = select('Cache dtype', DTYPES, 'float32', changed);
  const sizes = SIZES.map((n) => /** @type {[string, string]} */ ([String(n), `ring of ${formatCount(n)}`]));
  const size = select('Cache size', [['short', `up to ${formatCount(SHORT)}`], ['all', `all ${formatCount(CONTEXT)}`], ...sizes], 'all', changed);
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
    const ring = !(size.value in ENDING);
    return { cache: dtype.value, context: ENDING[size.value] ?? Number(size.value), ring, sink_tokens: ring ? Number(kept.value) : 0 };
  }

  return {
    element,
    choice,
    /** Shows what the model has, which may not be what was asked for. @param {import('../types').CacheState} state */
    show({ cache, ring, capacity, sinkTokens }) {
      dtype.value = cache;
      size.value = ring ? String(capacity) : capacity === SHORT ? 'short' : 'all';
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
      kept.disabled = busy || size.value in ENDING;
    },
  };
}

/**
 * GPU time of a token, by kernel.
 * @param {import('./write-api.js').WriteApi} api
 * @param {import('../store.js').Store} store
 */
export function mountTimes(api, store) {
  const body = h('tbody');
  const note = h('p', { class: 'muted small', role: 'status' }, TIMES);
  const start = h('button', { class: 'button compact', type: 'button', disabled: true, onclick: () => void measure() }, 'Measure');
  const element = h(
    'section',
    { class: 'write-times', 'aria-label': 'GPU time' },
    h('div', { class: 'caches-head' }, h('h3', null, 'GPU time of a token'), start),
    note,
    h('table', null, tableCaption('GPU time of a token by kernel'), body),
  );

  let isAble = false;

  async function measure() {
    start.disabled = true;
    try {
      const { gpu } = await api.profile();
      const entries = Object.entries(gpu);
      const total = entries.reduce((sum, [, us]) => sum + us, 0);
      note.textContent = describeTimes(entries.length > 0, store.state.info);
      fill(body, entries.map(([name, us]) => timeLine(name, us, total)), entries.length > 0 && timeLine('together', total, 0));
    } catch (error) {
      note.textContent = isLoss(error) ? 'The GPU was lost while the kernels were timed.' : `The kernels could not be timed: ${shortError(error)}`;
    } finally {
      start.disabled = !isAble;
    }
  }

  return {
    element,
    /** @param {boolean} able whether there is a text, and the model is not at work */
    reset(able) {
      isAble = able;
      start.disabled = !able;
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

/** @param {boolean} any @param {{ software: boolean } | null} info */
function describeTimes(any, info) {
  if (!any) return 'This adapter has no timestamps, so only the speed above is known.';
  const how = 'By GPU timestamps, each kernel by itself: together they take longer than in a row.';
  return info?.software ? `${how} The CPU does the work of this software adapter, so the times say nothing about a GPU.` : how;
}
