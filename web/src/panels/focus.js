/** One map, large: zoomed and panned, with the exact weight of the chosen cell, or of the one under the pointer. */

import { afterPaint, choose, fill, h, putPixels } from '../dom.js';
import { formatTick, formatToken, formatWeight, shortError } from '../format.js';
import { download, drawingOf, toJson, toPng, toSvg } from '../heatmap/export.js';
import { mountHeatmap } from '../heatmap/heatmap.js';
import { WRITTEN_FROM } from '../heatmap/written.js';
import { latest } from '../latest.js';
import { showOf } from '../reading.js';
import { createRows } from '../rows.js';
import { explained, term } from '../term.js';
import { pin } from '../store.js';
import { tokenMark } from './elements.js';
import { askFigure } from './focus-figure.js';
import { mountMargins } from './focus-margins.js';
import { mountReading } from './focus-reading.js';
import { buildFocus } from './focus-view.js';
import { mountViews } from './focus-views.js';
import { mountPins } from './pins.js';
import { describeMeaning, describeRows, isBuilt, nameMap } from './wording.js';

/**
 * @typedef {import('../heatmap/export.js').Format} Format
 * @typedef {import('../store.js').State} State
 *
 * @typedef {object} Panel
 * @property {import('../api.js').Api} api
 * @property {import('../store.js').Store} store
 * @property {ReturnType<typeof createRows>} rows
 * @property {ReturnType<typeof buildFocus>} view
 * @property {ReturnType<typeof mountHeatmap>} map
 * @property {string} kind of the source that is shown; "built" for what came with the page
 * @property {string} cell what the inspector shows
 * @property {number} maximum the weight that has the last colour of the map on screen
 * @property {ReturnType<typeof mountViews>} views
 * @property {() => void} request asks for what is on screen of the map
 * @property {() => void} inspect shows the weight of the cell under the pointer, or of the chosen one
 */

const MARKED = 1000; // tokens that are looked through
/** @type {Record<import('../types').Over, (layer: number, head: number) => string>} */
const FILE_NAMES = {
  head: (layer, head) => `layer${layer}-head${head}`,
  layer: (layer) => `layer${layer}-mean`,
  all: () => 'mean',
  rollout: (layer) => `rollout${layer}`,
};
const TYPES = { png: 'image/png', svg: 'image/svg+xml', json: 'application/json' };

/**
 * @param {HTMLElement} element
 * @param {import('../api.js').Api} api
 * @param {import('../store.js').Store} store
 */
export function mountFocus(element, api, store) {
  const view = buildFocus(store.state.style, {
    zoomBy: (factor) => map.zoomBy(factor),
    fit: () => map.fit(),
    save: (format) => void save(panel, format),
    setStyle: (patch) => setStyle(store, patch),
    setOver: (over) => store.set({ over }),
    // A reversed colour map stays reversed: that depends on light or dark.
    setColormap: (name) => setStyle(store, { colormap: store.state.style.colormap.endsWith('_r') ? `${name}_r` : name }),
  });
  fill(element, ...view.parts);
  const pins = mountPins(api, store);
  fill(view.pins, pins.element);
  const map = mountHeatmap(view.box, {
    onChoose: (query, key) => store.set({ query, key, hover: null }),
    onHover: (cell) => store.set({ hover: cell && { query: cell.row, key: cell.column } }),
    onPin: ({ row, column }, several) => pin(store, { query: row, key: column }, several || pins.several),
    onRelease: () => store.set({ pins: [] }),
    onView: () => {
      store.set({ view: map.view });
      panel.request();
    },
  });
  const load = latest(
    (/** @type {State} */ state) => loadWindow(panel, state),
    (error) => {
      view.box.setAttribute('aria-busy', 'false');
      fill(view.inspector, `The map could not be computed: ${shortError(error)}`);
    },
  );
  /** @type {Panel} */
  const panel = {
    api,
    store,
    rows: createRows(api, store),
    view,
    map,
    views: mountViews(api, store, { onMaximum: (maximum) => setMaximum(panel, maximum) }),
    kind: '',
    maximum: 1,
    cell: '',
    request: () => store.state.source && store.state.openAs === 'map' && load(store.state),
    inspect: () => inspect(panel),
  };
  const margins = mountMargins(api, store, () => map);
  fill(view.tokens, panel.views.as, ...mountReading(api, store).elements, margins.label);
  fill(view.figures, margins.figures);
  fill(view.heads, panel.views.legend);
  fill(view.views, panel.views.body);
  listen(panel);
  return { exported: (/** @type {Format} */ format) => exported(panel, format), destroy: () => (map.destroy(), panel.views.destroy()) };
}

/** @param {import('../store.js').Store} store @param {Partial<import('../types').Style>} patch */
function setStyle(store, patch) {
  store.set({ style: { ...store.state.style, ...patch } });
}

/** @param {Panel} panel */
function listen(panel) {
  const { store, view, map } = panel;
  store.on(['sourceNumber', 'source'], ({ source, query, key, view: zoomed }) => {
    if (!source) return;
    // A text that has grown keeps its picture until the next one is there, and so does what came with the page.
    const goesOn = source.kind === 'written' && panel.kind === 'written';
    if (goesOn || (panel.kind === 'built' && source.kind === 'sample')) map.growTokens(source.tokens);
    else map.setTokens(source.tokens);
    panel.kind = isBuilt(source) ? 'built' : source.kind;
    map.setChosen(query, key);
    map.show(zoomed);
    fill(view.marks, ...marksIn(source.tokens));
    drawLegend(panel);
  });
  store.on(['sourceNumber', 'source', 'edit', 'layer', 'head', 'over'], ({ source, layer, head, over }) => {
    view.title.textContent = nameMap(over, layer, head);
    choose(view.over, over);
    // Weights that were given have no gradients, and neither has a rollout.
    view.what.hidden = source?.kind === 'weights' || over === 'rollout';
    describe(panel);
    panel.request();
    panel.inspect();
  });
  store.on(['style'], ({ style }) => {
    choose(view.scale, style.scale);
    choose(view.range, style.range ?? 'unit');
    choose(view.pooling, style.pool);
    view.colors.value = style.colormap.replace(/_r$/u, '');
    choose(view.what, style.show ?? 'weights');
    describe(panel);
    panel.request();
    panel.inspect();
    drawLegend(panel);
    map.recolor();
  });
  store.on(['source', 'openAs'], ({ openAs }) => {
    view.box.hidden = openAs !== 'map';
    view.hints.hidden = openAs !== 'map';
    view.legend.hidden = openAs === 'lines';
    for (const one of [view.tools, view.tokens, view.pins]) one.dataset.as = openAs;
    view.figures.hidden = openAs !== 'map';
    view.pooling.hidden = openAs !== 'map';
    if (openAs !== 'map') view.sampling.hidden = true;
  });
  store.on(['openAs'], () => panel.request());
  store.on(['over'], () => drawLegend(panel));
  store.on(['query', 'key'], ({ query, key }) => {
    map.setChosen(query, key);
    panel.inspect();
  });
  store.on(['hover'], () => panel.inspect());
  store.on(['pins'], ({ pins }) => map.setPins(pins.map((one) => ({ row: one.query, column: one.key }))));
  store.on(['view'], ({ view: zoomed }) => map.show(zoomed));
}

/** What the tokens are that nobody typed. @param {string[]} tokens */
function marksIn(tokens) {
  const has = (/** @type {(token: string) => boolean} */ test) => tokens.slice(0, MARKED).some(test);
  const marks = [
    ...(['[CLS]', '[SEP]'].filter((mark) => has((token) => token === mark))),
    ...(has((token) => token.startsWith('##')) ? ['##'] : []),
  ].map((mark) => [' ', term(/** @type {import('../term.js').Term} */ (mark))]);
  return marks.length ? ['In this text:', ...marks.flat()] : [' '];
}

/** @param {Panel} panel */
function describe({ view, store }) {
  const { source, layer, over } = store.state;
  const show = showOf(store.state);
  fill(view.subtitle, ...explained(source ? describeRows(source, show, over) : ' ', 'query', 'softmax', 'key', 'LSE'));
  if (source) view.meaning.textContent = [describeMeaning(source, show, over, layer), source.readingNote].filter(Boolean).join(' ');
}

/** @param {Panel} panel @param {State} state */
async function loadWindow(panel, state) {
  const { api, store, view, map } = panel;
  const { source, sourceNumber, layer, head, over } = state;
  const style = { ...state.style, show: showOf(state) };
  const { rows, columns, pixels, width } = map.visible();
  if (!width) return;
  const { box } = view;
  box.setAttribute('aria-busy', 'true');
  const part = { layer, head, rows, columns, over };
  const { side, view: seen } = map.scene();
  // What came with the page has no weights for every map.
  const isWritten = side / seen.span >= WRITTEN_FROM && !isBuilt(source);
  const [answer, exact] = await Promise.all([
    api.window({ ...part, size: [pixels, pixels] }, style),
    isWritten ? api.weights({ ...part, show: style.show }) : null,
  ]);
  box.setAttribute('aria-busy', 'false');
  const now = store.state;
  if (now.sourceNumber !== sourceNumber || now.over !== over || showOf(now) !== style.show) return;
  const canvas = document.createElement('canvas');
  putPixels(canvas, answer.rgba, answer.width, answer.height);
  map.setPicture({ canvas, rows: answer.rows, columns: answer.columns, written: exact && { values: exact.weights, rgba: answer.rgba } });
  // No weights share a pixel where every cell is one weight.
  for (const input of view.pooling.querySelectorAll('input')) input.disabled = answer.exact;
  view.pooling.classList.toggle('inactive', answer.exact);
  describeSampling(view, answer);
  setMaximum(panel, answer.maximum ?? 1);
  if (isBuilt(source)) return void afterPaint(() => performance.mark('py-attn:first-picture'));
  if (!box.dataset.shown) performance.mark('py-attn:first-map');
  box.dataset.shown = [sourceNumber, layer, head, ...(over === 'head' ? [] : [over])].join('/');
}

/** The weight that has the last colour. @param {Panel} panel @param {number} maximum */
function setMaximum(panel, maximum) {
  if (panel.maximum === maximum) return;
  panel.maximum = maximum;
  drawLegend(panel);
}

/** What is said where not every row is computed. @param {Panel['view']} view @param {import('../types').MapWindow} answer */
function describeSampling({ sampling }, { step, maximum_step: of = 1 }) {
  const said = [];
  if (step > 1) said.push(`At this zoom level one of every ${step} rows is computed; zoom in to see all of them.`);
  if (of > 1) said.push(`The end of the colours is the largest weight of one of every ${of} rows.`);
  sampling.hidden = !said.length;
  sampling.textContent = said.join(' ');
}

/** @param {Panel} panel */
function inspect(panel) {
  const { rows, store, view, map, inspect: again } = panel;
  const { source, sourceNumber, layer, head, hover, edit, style } = store.state;
  if (!source) return;
  describeChosen(rows, store, map.canvas);
  const { query, key } = hover ?? store.state;
  const known = rows.peek(query);
  const cell = [layer, head, query, key, edit, style.show].join('/');
  // The weight that came with the page stays until Python says the same.
  const stays = !known && sourceNumber === 1 && cell === panel.cell;
  panel.cell = cell;
  if (!known) (hover ? rows.askHover : rows.ask)(again);
  if (stays) return;
  fill(
    view.inspector,
    tokenMark(source.tokens[query], query),
    h('span', { class: 'arrow', 'aria-label': 'attends to' }, '→'),
    tokenMark(source.tokens[key], key),
    h('output', { class: 'weight' }, known ? formatWeight(known.weights[key]) : '…'),
  );
}

/** For screen readers. @param {Panel['rows']} rows @param {import('../store.js').Store} store @param {HTMLCanvasElement} canvas */
function describeChosen(rows, store, canvas) {
  const { source, layer, head, over, query, key } = store.state;
  if (!source) return;
  const weight = rows.peek()?.weights[key];
  const cell = `“${formatToken(source.tokens[query])}” to “${formatToken(source.tokens[key])}”`;
  canvas.setAttribute(
    'aria-label',
    `Attention map, ${nameMap(over, layer, head).replace(/^[A-Z]/u, (first) => first.toLowerCase())}. Row ${query}, column ${key}. ${cell}${weight === undefined ? '' : `: ${formatWeight(weight)}`}`,
  );
}

/**
 * What is on screen of the map, as a file.
 * @param {Panel} panel @param {Format} format
 * @returns {Promise<import('../heatmap/export.js').Exported>}
 */
async function exported({ api, store, map, views }, format) {
  const { source, layer, head, over, query, key } = store.state;
  if (!source) throw new Error('There is no map yet.');
  const file = { name: `attention-${FILE_NAMES[over](layer, head)}.${format}`, type: TYPES[format] };
  if (format !== 'json') {
    const { openAs } = store.state;
    const drawing = openAs === 'map' ? drawingOf(await askFigure(api, store.state, map.visible(), map.scene())) : await views.drawing();
    return { ...file, data: format === 'png' ? await toPng(drawing) : toSvg(drawing) };
  }
  const { rows, columns } = map.visible();
  const show = showOf(store.state);
  const part = await api.weights({ layer, head, rows, columns, show, over });
  return { ...file, data: toJson({ source, layer, head, query, key, show, over }, part) };
}

/** @param {Panel} panel @param {Format} format */
async function save(panel, format) {
  try {
    download(await exported(panel, format));
  } catch (error) {
    fill(panel.view.inspector, `The map could not be saved: ${shortError(error)}`);
  }
}

/** Without an answer the legend stays as it is; the map reports what is wrong. @param {Panel} panel */
function drawLegend(panel) {
  void askLegend(panel).catch(() => {});
}

/** @param {Panel} panel */
async function askLegend({ api, store, view, maximum }) {
  const { colormap, scale, range } = store.state.style;
  const show = showOf(store.state);
  const most = range === 'map' ? maximum : 1;
  const { rgba, ticks } = await api.legend(colormap, scale, show, most);
  const end = formatTick(most, false);
  view.legend.setAttribute('aria-label', `Colour legend: ${show === 'gradient' ? `share from −${end} to ${end}` : `weight from 0 to ${end}`}`);
  putPixels(view.strip, rgba, 256, 1);
  fill(
    view.ticks,
    ticks.map(({ value, at }) => h('span', { style: { '--at': at } }, formatTick(value, show === 'gradient'))),
  );
}
