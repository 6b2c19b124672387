/** Layers × heads as thumbnails; one of them is in focus. */

import { fill, h, putPixels } from '../dom.js';
import { formatCount, formatTime, shortError } from '../format.js';
import { latest } from '../latest.js';

/**
 * @param {HTMLElement} element
 * @param {import('../api.js').Api} api
 * @param {import('../store.js').Store} store
 */
export function mountOverview(element, api, store) {
  const summary = h('p', { 'aria-live': 'polite' }, ' ');
  const grid = h('div', { class: 'thumbs', role: 'grid', 'aria-label': 'Attention maps by layer and head' });
  const caption = h('p', { class: 'muted small thumbs-hint' }, 'Click a map, or walk with the arrow keys.');
  fill(element, h('header', null, h('div', null, h('h2', null, 'Overview'), summary)), grid, caption);

  /** @type {HTMLButtonElement[][]} by layer and head */
  let buttons = [];

  /** @param {import('../types').SourceInfo} source */
  function build(source) {
    // The next sentence fills the same grid; its maps replace those of the last one by one.
    if (buttons.length === source.layers && buttons[0].length === source.heads) return mark();
    grid.style.setProperty('--heads', String(Math.min(source.heads, 16)));
    grid.style.setProperty('--lines', String(Math.ceil(source.heads / 4)));
    grid.classList.toggle('few', source.layers * source.heads <= 16);
    buttons = Array.from({ length: source.layers }, (_, layer) =>
      Array.from({ length: source.heads }, (_, head) =>
        h(
          'button',
          {
            class: 'thumb',
            type: 'button',
            role: 'gridcell',
            tabIndex: -1,
            'aria-label': `Layer ${layer + 1}, head ${head + 1}`,
            title: `Layer ${layer + 1} · head ${head + 1}`,
            onclick: () => store.set({ layer, head }),
            onfocus: () => store.set({ layer, head }),
          },
          h('canvas', { width: 1, height: 1 }),
        ),
      ),
    );
    fill(
      grid,
      buttons.map((row, layer) =>
        h(
          'div',
          { role: 'row', class: 'thumb-row' },
          h('span', { class: 'thumb-label', role: 'rowheader', 'aria-label': `Layer ${layer + 1}` }, `L${layer + 1}`),
          row,
        ),
      ),
    );
    mark();
  }

  function mark() {
    const { layer, head } = store.state;
    buttons.forEach((row, l) =>
      row.forEach((button, i) => {
        const chosen = l === layer && i === head;
        button.tabIndex = chosen ? 0 : -1;
        button.setAttribute('aria-selected', String(chosen));
      }),
    );
  }

  grid.addEventListener('keydown', (event) => {
    const { layer, head, source } = store.state;
    if (!source) return;
    const moves = /** @type {Record<string, [number, number]>} */ ({
      ArrowUp: [layer - 1, head],
      ArrowDown: [layer + 1, head],
      ArrowLeft: [layer, head - 1],
      ArrowRight: [layer, head + 1],
      Home: [layer, 0],
      End: [layer, source.heads - 1],
    });
    const to = moves[event.key];
    if (!to) return;
    event.preventDefault();
    buttons[to[0]]?.[to[1]]?.focus();
  });

  const load = latest(
    async (/** @type {import('../store.js').State} */ { source, sourceNumber, style }) => {
      if (!source) return;
      grid.setAttribute('aria-busy', 'true');
      const begun = performance.now();
      let step = 1;
      for (let layer = 0; layer < source.layers; layer++) {
        const answer = await api.overview(layer, style);
        step = answer.step;
        if (store.state.sourceNumber !== sourceNumber || store.state.style !== style) return;
        const bytes = 4 * answer.size * answer.size;
        for (let head = 0; head < answer.heads; head++) {
          const canvas = buttons[layer][head].firstElementChild;
          const part = answer.rgba.subarray(head * bytes, (head + 1) * bytes);
          putPixels(/** @type {HTMLCanvasElement} */ (canvas), part, answer.size, answer.size);
          buttons[layer][head].classList.add('painted');
        }
      }
      grid.setAttribute('aria-busy', 'false');
      const elapsed = formatTime(1000 * (performance.now() - begun));
      summary.textContent = `${describe(source)} ${elapsed} for all maps, ${engineName(source, store.state.info)}${step > 1 ? `, from one of every ${step} rows` : ''}.`;
      performance.mark('py-attn:maps');
      element.dataset.painted = String(sourceNumber);
    },
    (error) => {
      grid.setAttribute('aria-busy', 'false');
      summary.textContent = `The maps could not be computed: ${shortError(error)}`;
    },
  );

  store.on(['sourceNumber'], (state) => {
    if (!state.source) return;
    build(state.source);
    summary.textContent = describe(state.source);
    load(state);
  });
  store.on(['style', 'edit'], load);
  store.on(['layer', 'head'], mark);
  build({ ...EMPTY });
}

/** What is there before the first source: the sample's shape, so that nothing moves when it comes. */
const EMPTY = {
  kind: /** @type {'sample'} */ ('sample'),
  title: '',
  tokens: /** @type {string[]} */ ([]),
  layers: 6,
  heads: 12,
  kvHeads: 12,
  length: 0,
  headDim: 0,
  note: '',
  engine: '',
};

/** @param {import('../types').SourceInfo} source */
function describe({ layers, heads, length }) {
  const what = layers === 1 ? '1 layer' : `${layers} layers`;
  return `${what} × ${heads === 1 ? '1 head' : `${heads} heads`}, each ${formatCount(length)} × ${formatCount(length)} weights.`;
}

/** @param {import('../types').SourceInfo} source @param {import('../runtime/client.js').Info | null} info */
function engineName({ kind, engine }, info) {
  if (kind === 'weights') return 'as they were given';
  if (engine !== 'webgpu') return 'by the numpy reference';
  return info?.software ? 'by WGSL on a software adapter' : 'by WGSL on the GPU';
}
