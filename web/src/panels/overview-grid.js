/** The overview's grid: a thumbnail for each head, by layer or in another order. */

import { fill, h } from '../dom.js';
import { isHead, keepHead, toggleHead } from '../store.js';
import { describeHead, headName, linesOf, moveTo, shortName } from './overview-heads.js';

/**
 * @typedef {import('./overview-heads.js').Group} Group
 * @typedef {import('../types').Label} Label
 * @typedef {import('../types').HeadFindings} HeadFindings
 */

const CAPTIONED_WIDTH = 46; // px that a thumbnail needs for its caption
const FEWEST = 4;
const MOST = 12;

/** @param {import('../store.js').Store} store */
export function mountGrid(store) {
  const element = h('div', { class: 'thumbs', role: 'grid', 'aria-multiselectable': 'true', 'aria-label': 'Attention maps by layer and head' });
  let shape = { layers: 0, heads: 0 };
  /** @type {HTMLButtonElement[]} heads are counted through all layers, here and below */
  let buttons = [];
  /** @type {number[][]} */
  let lines = [];
  /** @type {Group[] | null} null: by layer */
  let groups = null;
  let columns = MOST;

  element.addEventListener('keydown', (event) => {
    const { layer, head, source } = store.state;
    if (!source) return;
    if ((event.ctrlKey || event.metaKey) && (event.key === 'Enter' || event.key === ' ')) {
      event.preventDefault();
      keepHead(store);
    }
    if (!/^(Arrow|Home$|End$)/u.test(event.key)) return;
    event.preventDefault();
    const to = moveTo(event.key, layer * source.heads + head, lines);
    if (to !== undefined) buttons[to].focus();
  });
  const sizes = new ResizeObserver(() => {
    const fits = Math.max(FEWEST, Math.min(MOST, Math.floor(element.clientWidth / CAPTIONED_WIDTH)));
    if (fits === columns) return;
    columns = fits;
    if (groups) layOut();
  });
  sizes.observe(element);

  function layOut() {
    const { layers, heads } = shape;
    const focused = buttons.find((button) => button.matches(':focus'));
    element.classList.toggle('sorted', groups !== null);
    element.style.setProperty('--heads', String(groups ? columns : Math.min(heads, 16)));
    if (groups) {
      const parts = linesOf(groups, columns);
      lines = parts.flatMap((part) => part.lines);
      fill(element, parts.flatMap((part) => [...headingRow(part.title, part.count), ...part.lines.map((line) => row(line))]));
    } else {
      lines = Array.from({ length: layers }, (_, layer) => Array.from({ length: heads }, (__, head) => layer * heads + head));
      fill(element, lines.map((line, layer) => row(line, layerLabel(layer))));
    }
    focused?.focus({ preventScroll: true });
  }

  /** @param {number[]} line @param {HTMLElement} [label] */
  function row(line, label) {
    return h('div', { role: 'row', class: 'thumb-row' }, label, line.map((head) => buttons[head]));
  }

  return {
    element,
    get buttons() {
      return buttons;
    },

    /** Makes the thumbnails of a source. @param {{ layers: number, heads: number }} source */
    build({ layers, heads }) {
      // A source of the same shape keeps the grid; its maps replace the earlier ones as they arrive.
      if (shape.layers === layers && shape.heads === heads) return;
      shape = { layers, heads };
      groups = null;
      element.style.setProperty('--lines', String(Math.ceil(heads / 4)));
      element.classList.toggle('few', layers * heads <= 16);
      buttons = Array.from({ length: layers * heads }, (_, index) => thumbnail(store, index, heads));
      layOut();
    },

    /** @param {Group[] | null} wanted null: by layer */
    arrange(wanted) {
      if (!wanted && !groups) return;
      groups = wanted;
      layOut();
    },

    /** Marks the map in focus. */
    mark() {
      const chosen = store.state.layer * shape.heads + store.state.head;
      buttons.forEach((button, head) => {
        button.tabIndex = head === chosen ? 0 : -1;
        const one = { layer: Math.floor(head / shape.heads), head: head % shape.heads };
        const isKept = store.state.heads.some((other) => isHead(other, one));
        button.setAttribute('aria-selected', String(head === chosen || isKept));
        button.classList.toggle('kept', isKept && head !== chosen);
      });
    },

    /** Emphasises some heads, and dims the others; null or none: all alike. @param {number[] | null} heads */
    emphasise(heads) {
      const found = new Set(heads);
      if (!found.size && !element.classList.contains('searching')) return;
      element.classList.toggle('searching', found.size > 0);
      buttons.forEach((button, head) => button.classList.toggle('match', found.has(head)));
    },

    /** Names each head with its labels. @param {HeadFindings | null} findings @param {Label[]} labels */
    describe(findings, labels) {
      buttons.forEach((button, head) => {
        const name = describeHead(headName(head, shape.heads), findings?.shown[head] ?? [], labels);
        button.setAttribute('aria-label', name);
        button.title = name.replace(', head', ' · head');
      });
    },

    destroy: () => sizes.disconnect(),
  };
}

/** @param {import('../store.js').Store} store @param {number} index @param {number} heads of a layer */
function thumbnail(store, index, heads) {
  const [layer, head] = [Math.floor(index / heads), index % heads];
  const focus = () => store.set({ layer, head });
  const isAdding = (/** @type {MouseEvent} */ event) => event.ctrlKey || event.metaKey || event.shiftKey;
  const name = headName(index, heads);
  return h(
    'button',
    {
      class: 'thumb',
      type: 'button',
      role: 'gridcell',
      tabIndex: -1,
      dataset: { head: `${layer}/${head}` },
      'aria-label': name,
      title: name.replace(',', ' ·'),
      // A click that adds a head leaves the focus where it is.
      onmousedown: (/** @type {MouseEvent} */ event) => isAdding(event) && event.preventDefault(),
      onclick: (/** @type {MouseEvent} */ event) => (isAdding(event) ? toggleHead(store, { layer, head }) : focus()),
      onfocus: focus,
    },
    h('canvas', { width: 1, height: 1 }),
    h('span', { class: 'thumb-caption', 'aria-hidden': 'true' }, shortName(index, heads)),
  );
}

/** @param {number} layer */
function layerLabel(layer) {
  return h('span', { class: 'thumb-label', role: 'rowheader', 'aria-label': `Layer ${layer}` }, `L${layer}`);
}

/** @param {string} title @param {number} count */
function headingRow(title, count) {
  if (!title) return [];
  const text = h('span', { role: 'rowheader' }, title, h('span', { class: 'muted' }, ` ${count}`));
  return [h('div', { role: 'row', class: 'thumb-heading' }, text)];
}
