/** What is on screen of the large map as a figure for a paper: in colours for a white ground, whatever the page's theme is. */

import { putPixels } from '../dom.js';
import { layOut } from '../heatmap/figure.js';
import { WRITTEN_FROM } from '../heatmap/written.js';
import { showOf } from '../reading.js';
import { meaningOf, nameMap } from './wording.js';

const PIXELS = 1600; // along a side of the picture at most

/**
 * @param {import('../api.js').Api} api @param {import('../store.js').State} state
 * @param {{ rows: [number, number], columns: [number, number] }} visible @param {Pick<import('../heatmap/draw.js').Scene, 'view' | 'margins'>} scene
 * @returns {Promise<import('../heatmap/figure.js').Figure>}
 */
export async function askFigure(api, state, { rows, columns }, { view, margins }) {
  const { source, layer, head, over } = state;
  if (!source) throw new Error('There is no map yet.');
  const show = showOf(state);
  const style = { ...state.style, show, colormap: onPaper(state.style) };
  const part = { layer, head, rows, columns, over };
  const { side } = layOut({ tokens: source.tokens, view, margins });
  const [answer, exact] = await Promise.all([
    api.window({ ...part, size: [PIXELS, PIXELS] }, style),
    side / view.span >= WRITTEN_FROM ? api.weights({ ...part, show }) : null,
  ]);
  const { meaning, legend } = await barOf(api, state, answer.maximum);
  return {
    title: source.title,
    subtitle: nameMap(over, layer, head),
    meaning: `${meaning}; rows are queries, columns are keys`,
    legend,
    tokens: source.tokens,
    view,
    margins,
    picture: { canvas: painted(answer.rgba, answer.width, answer.height), rows: answer.rows, columns: answer.columns, written: exact && { values: exact.weights, rgba: answer.rgba } },
  };
}

/** The colour map that is white, or nearly, at 0. @param {import('../types').Style} style */
const onPaper = ({ colormap }) => `${colormap.replace(/_r$/u, '')}_r`;

/**
 * A colour bar on white, and its 256 colours.
 * @param {import('../api.js').Api} api @param {import('../store.js').State} state @param {number} [maximum] the weight that has the last colour
 */
export async function barOf(api, state, maximum) {
  const show = showOf(state);
  const { scale } = state.style;
  const { rgba, ticks } = await api.legend(onPaper(state.style), scale, show, maximum);
  return { colors: rgba, meaning: meaningOf(show, scale), legend: { canvas: painted(rgba, 256, 1), ticks, isSigned: show === 'gradient' } };
}

/** @param {Uint8Array<ArrayBuffer>} rgba @param {number} width @param {number} height */
function painted(rgba, width, height) {
  const canvas = document.createElement('canvas');
  putPixels(canvas, rgba, width, height);
  return canvas;
}
