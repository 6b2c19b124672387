/** The causal map as decoding makes it: a row for every position that was visited. */

import { context2d, fill, h } from '../dom.js';

const MAX_SIDE = 512;

/**
 * @param {import('../api.js').Api} api
 * @param {import('../store.js').Store} store
 */
export function mountVisited(api, store) {
  const canvas = h('canvas', { width: 1, height: 1, role: 'img', 'aria-label': 'Rows decoded so far' });
  const caption = h('figcaption', { class: 'muted small' }, 'Rows so far');
  const element = h('figure', { class: 'decode-map' });
  fill(element, canvas, caption);

  /** @type {Map<number, import('../types').DecodeStep>} */
  let steps = new Map();
  let of = '';
  /** @type {{ name: string, colors: Promise<import('../types').Legend> } | null} */
  let palette = null;

  function colors() {
    const { colormap } = store.state.style;
    if (palette?.name !== colormap) palette = { name: colormap, colors: api.legend(colormap, 'sqrt') };
    return palette.colors;
  }

  /** @param {import('../types').DecodeStep} step */
  async function add(step) {
    const { source, sourceNumber, edit, layer, head } = store.state;
    if (!source || source.length > MAX_SIDE) {
      element.hidden = true;
      return;
    }
    element.hidden = false;
    const name = `${sourceNumber}/${edit}/${layer}/${head}/${step.capacity}`;
    if (name !== of) steps = new Map();
    of = name;
    steps.set(step.position, step);
    caption.textContent = `${steps.size} of ${source.length} rows so far`;
    paint(source.length, (await colors()).rgba);
  }

  /** @param {number} length @param {Uint8Array} rgba 256 colours */
  function paint(length, rgba) {
    canvas.width = canvas.height = length;
    const context = context2d(canvas);
    const image = context.createImageData(length, length);
    for (const { position, first, weights } of steps.values()) {
      weights.forEach((weight, i) => {
        const color = 4 * Math.round(255 * Math.sqrt(Math.min(Math.max(weight, 0), 1)));
        image.data.set(rgba.subarray(color, color + 4), 4 * (position * length + first + i));
      });
    }
    context.putImageData(image, 0, 0);
  }

  store.on(['style'], async ({ source }) => {
    if (source && source.length <= MAX_SIDE && steps.size) paint(source.length, (await colors()).rgba);
  });
  return { element, add };
}
