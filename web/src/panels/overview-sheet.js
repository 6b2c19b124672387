/** All heads, or those of one layer, as one figure for a paper. */

import { ICONS, putPixels } from '../dom.js';
import { formatCount, shortError } from '../format.js';
import { download, drawingOfSheet, toPng, toSvg } from '../heatmap/export.js';
import { arrangeMaps } from '../heatmap/sheet.js';
import { menu, saying } from '../menu.js';
import { meaningOf, modelOf } from './wording.js';

/**
 * @typedef {'png' | 'svg'} SheetFormat
 * @typedef {import('../types').SourceInfo} SourceInfo
 */

const PRINTED = 3; // pixels of a map for each CSS pixel of the figure
const MOST_PIXELS = 24e6; // of all maps together
const MOST_RECTS = 36; // of a map in SVG: of more, the pixels of a PNG take less
const CHANGED = 'Another text was opened meanwhile; press it again.';

/** How many cells along its side a map is computed with. @param {SourceInfo} source @param {{ layers: number, heads: number }} shape of the sheet */
export function cellsOf({ length }, shape) {
  const { side } = arrangeMaps(shape);
  return Math.min(length, PRINTED * side, Math.floor(Math.sqrt(MOST_PIXELS / (shape.layers * shape.heads))));
}

/** What is said below the maps. @param {SourceInfo} source @param {{ cells: number, step: number, pool: string, alone: boolean }} made */
export function notesOf({ length, readingNote }, { cells, step, pool, alone }) {
  const where = alone ? 'Each map is a head of this layer' : 'A row holds the heads of a layer';
  const notes = [`${where}; inside a map, rows are queries and columns are keys. Layers and heads count from 0.`];
  if (readingNote) notes.push(readingNote);
  if (cells < length) {
    const share = formatCount(Math.ceil(length / cells));
    const which = pool === 'mean' ? 'the mean' : 'the largest';
    notes.push(`Reduced from ${formatCount(length)} × ${formatCount(length)} to ${cells} × ${cells}: each pixel is ${which} of up to ${share} × ${share} weights${step > 1 ? `, of which one of every ${step} rows was computed` : ''}.`);
  }
  return notes;
}

/** @param {import('../api.js').Api} api @param {import('../store.js').Store} store */
export function sheetMenu(api, store) {
  const save = (/** @type {SheetFormat} */ format, alone = false) => async () => {
    try {
      say('Making the figure …');
      const file = await saveSheet(api, store, format, alone ? store.state.layer : null, (done, of) => say(`Layer ${done} of ${of} …`));
      download(file);
      say(`Saved as ${file.name}.`);
    } catch (error) {
      say(`The figure could not be made: ${shortError(error)}`);
    }
  };
  const title = 'On white, with title and colour bar';
  const list = menu('Save all heads', ICONS.save, [
    { label: 'All heads, SVG', title: `${title}, sharp at any size`, act: save('svg') },
    { label: 'All heads, PNG', title: `${title}, at three times its size`, act: save('png') },
    { label: 'Layer in focus, SVG', title: `${title}, sharp at any size`, act: save('svg', true) },
    { label: 'Layer in focus, PNG', title: `${title}, at three times its size`, act: save('png', true) },
  ]);
  const { element, say } = saying(list);
  return element;
}

/**
 * @param {import('../api.js').Api} api @param {import('../store.js').Store} store @param {SheetFormat} format
 * @param {number | null} only the layer, or null for all
 * @param {(done: number, of: number) => void} onProgress with each layer
 * @returns {Promise<import('../heatmap/export.js').Exported>}
 */
async function saveSheet(api, store, format, only, onProgress) {
  const drawing = drawingOfSheet(await askSheet(api, store, only, onProgress));
  const type = format === 'png' ? 'image/png' : 'image/svg+xml';
  const data = format === 'png' ? await toPng(drawing) : toSvg(drawing, MOST_RECTS);
  return { name: `attention-${only === null ? 'all-heads' : `layer${only}-heads`}.${format}`, type, data };
}

/**
 * @param {import('../api.js').Api} api @param {import('../store.js').Store} store @param {number | null} only
 * @param {(done: number, of: number) => void} onProgress
 * @returns {Promise<import('../heatmap/sheet.js').Sheet>}
 */
async function askSheet(api, store, only, onProgress) {
  const { source, sourceNumber, edit } = store.state;
  if (!source) throw new Error('There are no maps yet.');
  const show = store.state.style.show ?? 'weights';
  const style = { ...store.state.style, show, colormap: `${store.state.style.colormap.replace(/_r$/u, '')}_r` };
  const layers = only === null ? Array.from({ length: source.layers }, (_, layer) => layer) : [only];
  const size = cellsOf(source, { layers: layers.length, heads: source.heads });
  const ask = async (/** @type {number} */ layer, /** @type {{ size: number, maximum?: number }} */ given) => {
    const answer = await api.overview(layer, style, given);
    if (store.state.sourceNumber !== sourceNumber || store.state.edit !== edit) throw new Error(CHANGED);
    return answer;
  };
  const maximum = style.range === 'map' ? await largest(layers, ask) : undefined;
  /** @type {HTMLCanvasElement[]} */
  const maps = [];
  let [cells, step] = [0, 1];
  for (const layer of layers) {
    const answer = await ask(layer, { size, maximum });
    [cells, step] = [answer.size, answer.step];
    maps.push(...mapsOf(answer));
    onProgress(maps.length / source.heads, layers.length);
  }
  const { rgba, ticks } = await api.legend(style.colormap, style.scale, show, maximum);
  return {
    title: source.title,
    subtitle: subtitleOf(source, only),
    meaning: meaningOf(show, style.scale),
    legend: { canvas: painted(rgba, 256, 1), ticks, isSigned: show === 'gradient' },
    notes: notesOf(source, { cells, step, pool: style.pool, alone: layers.length === 1 }),
    layer: layers[0],
    heads: source.heads,
    maps,
  };
}

/** The largest weight of all heads, so that one colour bar holds for all of them. @param {number[]} layers @param {(layer: number, given: { size: number }) => Promise<import('../types').Overview>} ask */
async function largest(layers, ask) {
  let most = 0;
  for (const layer of layers) most = Math.max(most, (await ask(layer, { size: 1 })).maximum ?? 1);
  return most;
}

/** @param {SourceInfo} source @param {number | null} only */
function subtitleOf(source, only) {
  const { layers, heads, length, edited = [] } = source;
  const which = only === null && layers > 1 ? `${layers} layers × ${heads} heads` : `Layer ${only ?? 0}, ${heads === 1 ? '1 head' : `${heads} heads`}`;
  return [modelOf(source), which, `${formatCount(length)} tokens`, edited.length && `with ${edited.join(' and ')}`].filter(Boolean).join(', ');
}

/** @param {import('../types').Overview} answer */
function mapsOf({ heads, size, rgba }) {
  const bytes = 4 * size * size;
  return Array.from({ length: heads }, (_, head) => painted(rgba.subarray(head * bytes, (head + 1) * bytes), size, size));
}

/** @param {Uint8Array<ArrayBuffer>} rgba @param {number} width @param {number} height */
function painted(rgba, width, height) {
  const canvas = document.createElement('canvas');
  putPixels(canvas, rgba, width, height);
  return canvas;
}
