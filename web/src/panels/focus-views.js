/** The head in focus, and others beside it, as running text or as lines between tokens. */

import { choose, h, segmented } from '../dom.js';
import { formatToken, shortError } from '../format.js';
import { latest } from '../latest.js';
import { Click } from '../pointer.js';
import { showOf } from '../reading.js';
import { linesDrawing, paperHues, sentenceDrawing } from '../views/figure.js';
import { mountLegend, nameOf } from '../views/legend.js';
import { mountLines } from '../views/lines.js';
import { mountSentence } from '../views/sentence.js';
import { drawnHeads } from '../views/shade.js';
import { createTokenWeights } from '../views/weights.js';
import { barOf } from './focus-figure.js';
import { nameMap } from './wording.js';

/** @typedef {import('../store.js').State} State */

const AS = [
  { value: 'map', label: 'Map', title: 'a square of weights: rows are queries, columns are keys' },
  { value: 'sentence', label: 'Text', title: 'the text as one reads it, coloured by the weights of one token' },
  { value: 'lines', label: 'Lines', title: 'queries at the left, keys at the right, a line for each link' },
];
const DIRECTIONS = [
  { value: 'from', label: 'Attends to', title: 'the weights with which the chosen token attends to every token: its row' },
  { value: 'to', label: 'Attended by', title: 'the weights with which every token attends to the chosen one: its column' },
];
const USAGE = {
  sentence: `${Click()} a token, or move with the arrow keys, to choose it; the strip below each token is as long as its weight is large. Shift+click, or Enter, pins a link, Escape lets all pins go.`,
  lines: `Point at a token to see its links alone. ${Click()} it to choose it. Up and down choose another token, left and right change between queries and keys; Shift+click, or Enter, pins a link.`,
};

const SEVERAL =
  'Ctrl+click (⌘+click) a map of the overview, or “Add a head”, shows several heads together; with the keyboard, Ctrl+Enter in the overview keeps the head in focus.';

/**
 * @param {import('../api.js').Api} api @param {import('../store.js').Store} store
 * @param {{ onMaximum: (maximum: number) => void }} listeners `onMaximum`: another weight has the last colour
 */
export function mountViews(api, store, { onMaximum }) {
  const as = segmented('How the head is drawn', AS, 'map', (value) => store.set({ openAs: /** @type {State['openAs']} */ (value), hover: null }));
  as.classList.add('focus-as');
  const direction = segmented('Direction', DIRECTIONS, 'from', (value) => store.set({ direction: /** @type {State['direction']} */ (value) }));
  const problem = h('p', { class: 'small views-problem', role: 'status' });
  const usage = h('p', { class: 'muted small' });
  const weights = createTokenWeights(api, store, (error) => (problem.textContent = `The weights could not be computed: ${shortError(error)}`));
  const legend = mountLegend(store, () => update());
  const sentence = mountSentence(store);
  const lines = mountLines(api, store, { weights, on: () => legend.on, onWeights: () => say(), onMaximum });
  const body = h('div', { class: 'views', hidden: true }, h('div', { class: 'views-head' }, direction, lines.only), problem, sentence.element, lines.element, usage);
  /** @type {Uint8Array | null} */
  let colors = null;
  let coloured = ''; // the style of these colours

  const drawSentence = () => {
    if (store.state.openAs !== 'sentence' || !colors) return;
    const { direction: way, query, key } = store.state;
    const found = weights.peek(way === 'from' ? query : key, way);
    if (found) onMaximum(found.maximum);
    sentence.draw({ found, on: legend.on, legend: colors, isSigned: showOf(store.state) === 'gradient' });
  };

  /** The weights beside the heads: of the cell under the pointer, or of the chosen one. */
  const say = () => {
    const { source, hover, openAs } = store.state;
    if (!source) return;
    // Over the map only the head in focus is asked for what is pointed at.
    const { query, key } = (openAs !== 'map' && hover) || store.state;
    const row = weights.peek(query, 'from');
    const found = row ?? weights.peek(key, 'to');
    legend.say(found ? found.rows.map((one) => one[row ? key : query]) : []);
  };

  const loadColors = latest(
    async () => {
      const { colormap, scale } = store.state.style;
      const asked = [colormap, scale, showOf(store.state)].join('/');
      if (asked === coloured) return;
      colors = (await api.legend(colormap, scale, showOf(store.state))).rgba;
      coloured = asked;
      drawSentence();
    },
    () => {},
  );

  const ask = weights.lane(() => {
    drawSentence();
    say();
  });

  const update = () => {
    const { source, openAs, heads, direction: way, query, key } = store.state;
    if (!source || (openAs === 'map' && !heads.length)) return;
    problem.textContent = '';
    if (openAs === 'map') ask(query, 'from');
    else ask(way === 'from' ? query : key, way);
    drawSentence();
    lines.update();
    say();
  };

  const draw = () => {
    const { openAs, direction: way } = store.state;
    choose(as, openAs);
    choose(direction, way);
    body.hidden = openAs === 'map';
    sentence.element.hidden = openAs !== 'sentence';
    lines.element.hidden = lines.only.hidden = openAs !== 'lines';
    usage.textContent = openAs === 'map' ? '' : `${USAGE[openAs]} ${SEVERAL}`;
  };

  store.on(['source', 'openAs', 'direction'], draw);
  store.on(['source', 'openAs', 'style', 'over'], () => store.state.openAs === 'sentence' && loadColors(undefined));
  store.on(['openAs', 'source', 'sourceNumber', 'edit', 'layer', 'head', 'heads', 'over', 'query', 'key', 'direction', 'pins', 'style'], update);
  store.on(['query', 'key'], ({ openAs, query, key, direction: way, hover }) => openAs === 'lines' && !hover && lines.reveal(way === 'from' ? query : key));
  store.on(['hover'], say);

  return {
    as,
    legend: legend.element,
    body,
    destroy: () => lines.destroy(),

    /** What is shown as a figure on white. @returns {Promise<import('../heatmap/export.js').Drawing>} */
    async drawing() {
      const { state } = store;
      const { source, openAs, direction: way, query, key, style } = state;
      if (!source) throw new Error('There is no map yet.');
      const [heads, on] = [drawnHeads(state), legend.on];
      const isSeveral = heads.length > 1;
      const about = {
        title: source.title,
        subtitle: isSeveral ? (openAs === 'sentence' ? 'Mean of several heads, and each of them below' : 'Several heads') : nameMap(state.over, state.layer, state.head),
        heads: isSeveral ? on.map((place, i) => ({ name: nameOf(heads[place]), hue: paperHues(on)[i] })) : [],
      };
      if (openAs === 'lines') return linesDrawing({ ...about, subtitle: `${about.subtitle}: queries left, keys right` }, lines.scene(), paperHues(heads.map((_, i) => i)));
      const chosen = way === 'from' ? query : key;
      const found = weights.peek(chosen, way);
      if (!found) throw new Error('The weights are not there yet.');
      const name = formatToken(source.tokens[chosen]);
      const [first, last] = sentence.part;
      const { colors: paper, ...bar } = await barOf(api, state, found.maximum);
      return sentenceDrawing(
        { ...about, subtitle: `${about.subtitle}: ${way === 'from' ? `what “${name}” attends to` : `what attends to “${name}”`}` },
        {
          tokens: source.tokens.slice(first, last),
          chosen: chosen - first,
          rows: on.map((place) => found.rows[place].subarray(first, last)),
          hues: paperHues(on),
          maximum: found.maximum,
          scale: style.scale,
          colors: paper,
          bar,
        },
      );
    },
  };
}
