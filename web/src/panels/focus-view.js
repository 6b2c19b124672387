/** The elements of the panel with the large map. */

import { h, ICONS, segmented } from '../dom.js';
import { FORMATS } from '../heatmap/export.js';
import { menu } from '../menu.js';
import { isTouch } from '../pointer.js';
import { explained } from '../term.js';
import { iconButton, select } from './elements.js';
import { MEANING } from './wording.js';

/**
 * @typedef {import('../types').Style} Style
 *
 * @typedef {object} Actions
 * @property {(factor: number) => void} zoomBy
 * @property {() => void} fit
 * @property {(format: import('../heatmap/export.js').Format) => void} save
 * @property {(patch: Partial<Style>) => void} setStyle
 * @property {(name: string) => void} setColormap
 * @property {(over: import('../types').Over) => void} setOver
 */

const FILES = {
  png: { label: 'PNG picture', title: 'A figure on white with title and colour bar, at three times its size' },
  svg: { label: 'SVG drawing', title: 'A figure on white with title and colour bar, sharp at any size' },
  json: { label: 'JSON weights', title: 'The weights on screen, with their tokens' },
};
const SHOWS = [
  { value: 'weights', label: 'Weights', title: 'how much each query attends to each key' },
  { value: 'gradient', label: 'Weight × gradient', title: 'how much each key contributes to the output of each query' },
];
const OVERS = [
  { value: 'head', label: 'This head' },
  { value: 'layer', label: 'Layer mean', title: 'the mean over the heads of this layer' },
  { value: 'all', label: 'All heads', title: 'the mean over all heads of all layers' },
  { value: 'rollout', label: 'Rollout', title: 'attention rollout (Abnar and Zuidema 2020): the layers up to this one, multiplied' },
];
const SCALES = [
  { value: 'linear', label: 'linear' },
  { value: 'sqrt', label: '√', title: 'square root: small weights are easier to see' },
  { value: 'log', label: 'log', title: 'logarithm over four decades' },
];
const POOLS = [
  { value: 'max', label: 'max', title: 'the largest of the weights that share a pixel' },
  { value: 'mean', label: 'mean', title: 'the mean of the weights that share a pixel' },
];
const RANGES = [
  { value: 'unit', label: '0–1', title: 'the colours span 0 to 1, alike for every head' },
  { value: 'map', label: 'map', title: 'the colours span 0 to the largest weight of the map; in the overview, of each head’s own map' },
];
const COLORMAPS = ['rocket', 'magma', 'viridis'];

/** @param {Style} style chosen at first @param {Actions} actions */
export function buildFocus(style, actions) {
  const title = h('h2', null, 'Focus');
  const subtitle = h('p', null, ' ');
  const box = h('div', { class: 'heatmap-box' });
  const inspector = h('p', { class: 'inspector' }, ' ');
  const pins = h('div', { class: 'focus-pins' });
  const heads = h('div');
  const views = h('div');
  const hints = usage();
  const meaning = h('p', { class: 'muted small' }, MEANING.weights);
  const marks = h('p', { class: 'muted small marks' }, ' ');
  const sampling = h('p', { class: 'muted small', hidden: true });
  const { over, what, scale, range, pooling, colors } = choices(style, actions);
  const tokens = h('div', { class: 'focus-tokens' });
  const figures = h('div');
  const { legend, strip, ticks } = legendFigure();
  const tools = toolbar(actions);
  const parts = [
    h('header', null, h('div', null, title, subtitle), tools),
    h('div', { class: 'focus-what' }, over, what),
    tokens,
    h('div', { class: 'focus-said' }, meaning),
    inspector,
    figures,
    heads,
    pins,
    box,
    views,
    h('div', { class: 'focus-foot' }, legend, h('div', { class: 'style-choices' }, range, scale, pooling, colors)),
    sampling,
    marks,
    hints,
  ];
  return { parts, heads, views, hints, tools, marks, title, subtitle, over, what, tokens, figures, meaning, box, inspector, pins, legend, strip, ticks, scale, range, pooling, colors, sampling };
}

/** @param {Actions} actions */
function toolbar({ zoomBy, fit, save }) {
  return h(
    'div',
    { class: 'tools', role: 'toolbar', 'aria-label': 'Zoom and save' },
    iconButton('Zoom out', ICONS.minus, () => zoomBy(1 / 1.6)),
    iconButton('Zoom in', ICONS.plus, () => zoomBy(1.6)),
    iconButton('Show the whole map', ICONS.fit, fit),
    menu(
      'Save what is shown',
      ICONS.save,
      FORMATS.map((format) => ({ ...FILES[format], act: () => save(format) })),
    ),
  );
}

/** What the map shows, and how it is coloured. @param {Style} style @param {Actions} actions */
function choices(style, { setStyle, setColormap, setOver }) {
  const set = (/** @type {keyof Style} */ name) => (/** @type {any} */ value) => setStyle({ [name]: value });
  const over = segmented('Whose map', OVERS, 'head', (value) => setOver(/** @type {import('../types').Over} */ (value)));
  over.classList.add('focus-over');
  const what = segmented('What the map shows', SHOWS, style.show ?? 'weights', set('show'));
  const scale = segmented('Colour scale', SCALES, style.scale, set('scale'));
  const range = segmented('Range of the colours', RANGES, style.range ?? 'unit', set('range'));
  range.prepend(h('span', { class: 'segmented-name', 'aria-hidden': 'true' }, 'Range'));
  const pooling = segmented('How weights that share a pixel are combined', POOLS, style.pool, set('pool'));
  const colors = select('Colour map', COLORMAPS.map((name) => [name, name]), style.colormap.replace(/_r$/u, ''), setColormap);
  colors.className = 'input compact';
  return { over, what, scale, range, pooling, colors };
}

function legendFigure() {
  const strip = h('canvas', { class: 'legend-strip', width: 256, height: 1 });
  const ticks = h('div', { class: 'legend-ticks' });
  return { legend: h('figure', { class: 'legend', 'aria-label': 'Colour legend: weight from 0 to 1' }, strip, ticks), strip, ticks };
}

function usage() {
  return h(
    'p',
    { class: 'muted small usage' },
    explained(
      isTouch()
        ? 'Rows are queries, columns are keys. Tap a cell to pin it; two fingers zoom. With a keyboard, arrow keys choose a cell, Enter pins it, Escape lets all pins go. Once the map is tapped, '
        : 'Rows are queries, columns are keys. Arrow keys choose a cell, Enter pins it, Escape lets all pins go. Once the map is clicked, ',
      'key',
    ),
    h('kbd', null, '+'),
    ' ',
    h('kbd', null, '−'),
    ' ',
    h('kbd', null, '0'),
    ' or the wheel zoom it, and dragging pans.',
  );
}
