/** The head in focus beside another map, and their difference: with one zoom and one chosen cell for all three. */

import { fill, h, putPixels } from '../dom.js';
import { formatSigned, formatToken, formatWeight, shortError } from '../format.js';
import { mountHeatmap } from '../heatmap/heatmap.js';
import { latest } from '../latest.js';
import { pin } from '../store.js';
import { buildCompare, buildMaps } from './compare-view.js';
import { beginning, defineFigures, describeFigures, namesOf, roundSpan } from './compare-words.js';
import { tokenMark } from './elements.js';
import { compareTable } from './tables.js';

/**
 * @typedef {import('../store.js').State} State
 * @typedef {import('../types').CompareFigures} CompareFigures
 * @typedef {'a' | 'b' | 'difference'} Name
 *
 * @typedef {object} Panel
 * @property {import('../api.js').Api} api
 * @property {import('../store.js').Store} store
 * @property {ReturnType<typeof buildCompare>} view
 * @property {Shown | null} shown made when something is compared for the first time
 * @property {number} sourceNumber whose tokens the maps have
 * @property {CompareFigures | null} figures
 * @property {string} known what the figures belong to
 * @property {Map<number, import('../types').CompareRow>} rows by their query
 * @property {() => void} request asks for what is on screen
 * @property {(query: number) => void} askRow
 *
 * @typedef {object} Shown
 * @property {ReturnType<typeof buildMaps>} body
 * @property {Record<Name, ReturnType<typeof mountHeatmap>>} maps
 */

const REMARK = 'A and B show weights in the colours of the large map above; A − B is blue where B has more, orange where A has more.';
const NAMES = /** @type {Name[]} */ (['a', 'b', 'difference']);

/**
 * @param {HTMLElement} element
 * @param {import('../api.js').Api} api
 * @param {import('../store.js').Store} store
 * @param {{ canEdit: boolean }} host whether a score_mod can be written beside the maps
 */
export function mountCompare(element, api, store, { canEdit }) {
  const view = buildCompare({
    begin: (kind) => store.state.source && store.set({ compare: beginning(kind, store.state, store.state.source) }),
    compareWith: (compare) => store.set({ compare }),
    takeFocus: () => store.set({ compare: { with: 'head', layer: store.state.layer, head: store.state.head } }),
    stop: () => store.set({ compare: null }),
  });
  fill(element, ...view.parts);
  const refreshLatest = latest(
    () => refresh(panel),
    (error) => fail(panel, error),
  );
  const askRow = latest(
    (/** @type {number} */ query) => loadRow(panel, query),
    () => {},
  );
  /** @type {Panel} */
  const panel = {
    api,
    store,
    view,
    shown: null,
    sourceNumber: -1,
    figures: null,
    known: '',
    rows: new Map(),
    request: () => refreshLatest(undefined),
    askRow,
  };
  listen(panel, canEdit);
  return {
    destroy() {
      for (const map of Object.values(panel.shown?.maps ?? {})) map.destroy();
    },
  };
}

/** @param {Panel} panel @param {boolean} canEdit */
function listen(panel, canEdit) {
  const { store, view } = panel;
  store.on(['sourceNumber', 'edit', 'layer', 'head', 'compare'], (state) => {
    const { source, compare } = state;
    view.show(compare, source, canEdit);
    if (!source || !compare) return;
    panel.shown ??= makeMaps(panel);
    takeTokens(panel);
    panel.request();
  });
  store.on(['style'], ({ compare }) => {
    if (!compare || !panel.shown) return;
    for (const map of Object.values(panel.shown.maps)) map.recolor();
    panel.request();
  });
  store.on(['query', 'key', 'hover'], () => showCell(panel));
  store.on(['pins'], () => eachMap(panel, (map) => map.setPins(pinsOf(panel))));
  store.on(['view'], ({ view: zoomed, sourceNumber }) => {
    // The maps' tokens follow with the source.
    if (sourceNumber === panel.sourceNumber) eachMap(panel, (map, name) => isLikeA(panel, name) && map.show(zoomed));
  });
}

/** @param {Panel} panel */
function pinsOf({ store }) {
  return store.state.pins.map(({ query, key }) => ({ row: query, column: key }));
}

/** @param {Panel} panel @param {(map: ReturnType<typeof mountHeatmap>, name: Name) => void} act */
function eachMap({ shown }, act) {
  for (const name of NAMES) if (shown) act(shown.maps[name], name);
}

/** Whether a map has the cells that A has: another text may have others. @param {Panel} panel @param {Name} name */
function isLikeA({ figures }, name) {
  return name !== 'b' || !figures?.whyNot;
}

/** @param {Panel} panel @returns {Shown} */
function makeMaps(panel) {
  const { store, view } = panel;
  const body = buildMaps(() => tableOf(panel));
  fill(view.body, ...body.parts);
  const make = (/** @type {Name} */ name) =>
    mountHeatmap(body.maps[name].box, {
      onChoose: (query, key) => isLikeA(panel, name) && store.set({ query, key, hover: null }),
      onHover: (cell) => isLikeA(panel, name) && store.set({ hover: cell && { query: cell.row, key: cell.column } }),
      onPin: ({ row, column }, several) => isLikeA(panel, name) && pin(store, { query: row, key: column }, several),
      onRelease: () => store.set({ pins: [] }),
      onView: () => {
        if (panel.shown && isLikeA(panel, name) && store.state.sourceNumber === panel.sourceNumber) {
          store.set({ view: panel.shown.maps[name].view });
        }
        panel.request();
      },
    });
  return { body, maps: { a: make('a'), b: make('b'), difference: make('difference') } };
}

/** The maps begin with another source; B's own tokens come with the figures. @param {Panel} panel */
function takeTokens(panel) {
  const { store, shown } = panel;
  const { source, sourceNumber, compare, layer, head, query, key, view } = store.state;
  if (!source || !compare || !shown) return;
  const names = namesOf(compare, { layer, head });
  shown.body.maps.a.name.textContent = names.a;
  shown.body.maps.b.name.textContent = names.b;
  shown.body.maps.difference.name.textContent = 'A − B';
  for (const name of NAMES) {
    const says = name === 'difference' ? 'Difference of the two maps' : names[name];
    shown.maps[name].canvas.setAttribute('aria-label', says);
  }
  if (panel.sourceNumber === sourceNumber) return;
  panel.sourceNumber = sourceNumber;
  Object.assign(panel, { figures: null, known: '' });
  eachMap(panel, (map) => {
    map.setTokens(source.tokens);
    map.setChosen(query, key);
    map.setPins(pinsOf(panel));
    map.show(view);
  });
}

/** What the figures and rows belong to. @param {State} state */
function keyOf({ sourceNumber, edit, layer, head, compare }) {
  return JSON.stringify([sourceNumber, edit, layer, head, compare]);
}

/** @param {Panel} panel */
async function refresh(panel) {
  const { api, store, view } = panel;
  const { source, layer, head, compare } = store.state;
  if (!source || !compare) return;
  const wanted = keyOf(store.state);
  view.body.setAttribute('aria-busy', 'true');
  if (panel.known !== wanted) {
    const figures = await api.compareFigures({ layer, head, other: compare });
    if (keyOf(store.state) !== wanted) return; // the next request is on its way
    takeFigures(panel, figures, wanted);
  }
  view.body.hidden = false;
  view.note.classList.remove('bad');
  view.note.textContent = panel.figures?.note || REMARK;
  await paint(panel, wanted);
  view.body.setAttribute('aria-busy', 'false');
}

/** @param {Panel} panel @param {unknown} error */
function fail({ store, view }, error) {
  if (!store.state.compare) return;
  view.body.setAttribute('aria-busy', 'false');
  view.body.hidden = true;
  view.note.classList.add('bad');
  const reason = shortError(error);
  view.note.textContent = `This cannot be compared: ${reason.replace(/[.]$/u, '')}.`;
}

/** @param {Panel} panel @param {CompareFigures} figures @param {string} wanted */
function takeFigures(panel, figures, wanted) {
  const { store, shown } = panel;
  const { source } = store.state;
  if (!shown || !source) return;
  const before = panel.figures;
  Object.assign(panel, { figures, known: wanted, rows: new Map() });
  const tokens = figures.tokens;
  if (String(tokens) !== String(before?.tokens ?? source.tokens) || before?.whyNot !== figures.whyNot) {
    shown.maps.b.setTokens(tokens);
    if (!figures.whyNot) shown.maps.b.show(store.state.view);
  }
  shown.body.maps.difference.lack(figures.whyNot);
  showDistances(panel, figures);
  showCell(panel);
}

/** @param {Panel} panel @param {CompareFigures} figures */
function showDistances({ store, shown }, figures) {
  const { source } = store.state;
  if (!shown || !source) return;
  const { largest, variation, shannon } = figures;
  const { body } = shown;
  body.variation.textContent = variation === undefined ? '–' : variation.toFixed(3);
  body.shannon.textContent = shannon === undefined ? '–' : `${shannon.toFixed(3)} bits`;
  body.definition.textContent = largest ? defineFigures(figures) : figures.whyNot;
  body.spoken.textContent = largest ? describeFigures(figures, source.tokens) : figures.whyNot;
  if (!largest) {
    body.largest.textContent = '–';
    return;
  }
  const { query, key, difference } = largest;
  const go = h(
    'button',
    { class: 'button compact', type: 'button', title: 'Choose this cell', onclick: () => store.set({ query, key }) },
    tokenMark(source.tokens[query], query),
    ' → ',
    tokenMark(source.tokens[key], key),
  );
  fill(body.largest, h('span', { class: 'number' }, formatSigned(difference)), ' ', go);
}

/** @param {Panel} panel @param {string} wanted */
async function paint(panel, wanted) {
  const { api, store, shown, figures } = panel;
  const { layer, head, compare, style } = store.state;
  if (!shown || !figures || !compare) return;
  const a = shown.maps.a.visible();
  const b = figures.whyNot ? shown.maps.b.visible() : a;
  if (!a.width) return;
  const span = roundSpan(figures.largest?.difference ?? 0);
  const maximum = style.range === 'map' && figures.maximum > 0 ? figures.maximum : 1;
  const [answer, weights, signed] = await Promise.all([
    api.compare(
      { layer, head, other: compare, rows: a.rows, columns: a.columns, other_rows: b.rows, other_columns: b.columns, size: [a.pixels, a.pixels], maximum, span },
      style,
    ),
    api.legend(style.colormap, style.scale),
    api.legend(style.colormap, style.scale, 'gradient'),
  ]);
  if (keyOf(store.state) !== wanted) return;
  for (const name of NAMES) {
    const part = answer[name];
    if (!part) continue;
    const canvas = document.createElement('canvas');
    putPixels(canvas, part.rgba, part.width, part.height);
    shown.maps[name].setPicture({ canvas, rows: part.rows, columns: part.columns });
    const isSigned = name === 'difference';
    shown.body.maps[name].showLegend(isSigned ? signed : weights, isSigned ? span : maximum, isSigned);
  }
  panel.view.body.dataset.shown = wanted;
}

/** The weights of the chosen cell, or of the one under the pointer. @param {Panel} panel */
function showCell(panel) {
  const { store, shown, figures } = panel;
  const { source, hover, query: row, key: column, compare } = store.state;
  if (!shown || !source || !compare || !figures || panel.known !== keyOf(store.state)) return;
  const { query, key } = hover ?? { query: row, key: column };
  eachMap(panel, (map, name) => {
    if (isLikeA(panel, name)) map.setChosen(row, column);
  });
  const known = panel.rows.get(query);
  if (!known) panel.askRow(query);
  const { a, b } = known ?? {};
  // Cells of texts of different lengths have nothing to do with each other.
  const other = figures.whyNot ? undefined : b?.[key];
  const value = (/** @type {string} */ label, /** @type {string} */ text) => h('span', { class: 'number' }, h('b', null, label), ` ${text}`);
  fill(
    shown.body.cell,
    h('span', { class: 'compare-cell' }, `${formatToken(source.tokens[query])} → ${formatToken(source.tokens[key])}`),
    value('A', a ? formatWeight(a[key]) : '…'),
    value('B', other === undefined ? (known ? '–' : '…') : formatWeight(other)),
    value('A − B', a && other !== undefined ? formatSigned(a[key] - other) : known ? '–' : '…'),
  );
}

/** @param {Panel} panel */
function tableOf({ store, figures, rows }) {
  const { source, compare, layer, head, query, key } = store.state;
  if (!source || !compare || !figures) return null;
  const { a, b } = rows.get(query) ?? {};
  const cell = { query, key, a: a?.[key], b: figures.whyNot ? undefined : b?.[key] };
  return compareTable(namesOf(compare, { layer, head }), source.tokens, figures, cell);
}

/** @param {Panel} panel @param {number} query */
async function loadRow(panel, query) {
  const { api, store } = panel;
  const { layer, head, compare } = store.state;
  const wanted = keyOf(store.state);
  if (!compare || panel.rows.has(query)) return;
  const row = await api.compareRow({ layer, head, other: compare, query });
  if (panel.known !== wanted || keyOf(store.state) !== wanted) return;
  panel.rows.set(query, row);
  showCell(panel);
}
