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
  const isSigned = show === 'gradient';
  const style = { ...state.style, show, colormap: `${state.style.colormap.replace(/_r$/u, '')}_r` };
  const part = { layer, head, rows, columns, over };
  const { side } = layOut({ tokens: source.tokens, view, margins });
  const [answer, exact] = await Promise.all([
    api.window({ ...part, size: [PIXELS, PIXELS] }, style),
    side / view.span >= WRITTEN_FROM ? api.weights({ ...part, show }) : null,
  ]);
  const { rgba, ticks } = await api.legend(style.colormap, style.scale, show, answer.maximum);
  return {
    title: source.title,
    subtitle: nameMap(over, layer, head),
    meaning: `${meaningOf(show, style.scale)}; rows are queries, columns are keys`,
    legend: { canvas: painted(rgba, 256, 1), ticks, isSigned },
    tokens: source.tokens,
    view,
    margins,
    picture: { canvas: painted(answer.rgba, answer.width, answer.height), rows: answer.rows, columns: answer.columns, written: exact && { values: exact.weights, rgba: answer.rgba } },
  };
}

/** @param {Uint8Array<ArrayBuffer>} rgba @param {number} width @param {number} height */
function painted(rgba, width, height) {
  const canvas = document.createElement('canvas');
  putPixels(canvas, rgba, width, height);
  return canvas;
}
