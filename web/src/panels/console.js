/** A Python console around the same door as `window.pyAttn.run`. */

import { fill, h, putPixels } from '../dom.js';
import { formatCount } from '../format.js';
import { EXAMPLES } from '../editor/examples.js';

/** @typedef {import('../runtime/output.js').Line} Line */

const MAX_LINES = 3000; // kept on the page
const KEPT_TEXT = 'py-attn.console';

/**
 * @typedef {object} Python
 * @property {(source: string) => Promise<import('../types').Shown>} show
 * @property {() => void} stop
 */

/**
 * @param {HTMLElement} element
 * @param {Python} python
 */
export function mountConsole(element, python) {
  const run = h('button', { class: 'button primary', type: 'button', disabled: true, onclick: () => void start() }, 'Run', h('kbd', null, 'Ctrl ↵'));
  const stop = h('button', { class: 'button', type: 'button', disabled: true, onclick: () => python.stop() }, 'Stop');
  const clear = h('button', { class: 'button', type: 'button', onclick: () => fill(output) }, 'Clear');
  const examples = h(
    'div',
    { class: 'examples', role: 'group', 'aria-label': 'Examples' },
    EXAMPLES.map(({ name, source }) =>
      h('button', { class: 'button compact', type: 'button', onclick: () => void use(source) }, name),
    ),
  );
  const box = h('div', { class: 'editor' });
  const output = h('div', { class: 'output', role: 'log', 'aria-label': 'Output', tabIndex: 0 });
  fill(
    element,
    h(
      'header',
      null,
      h(
        'div',
        null,
        h('h2', null, 'Python'),
        h(
          'p',
          null,
          'The same Python that drives this page: ',
          h('code', null, 'pa'),
          ', ',
          h('code', null, 'np'),
          ' and ',
          h('code', null, 'device'),
          ' are there, await works at the top level, and the last expression is shown.',
        ),
      ),
      examples,
    ),
    h('div', { class: 'console-body' }, box, output),
    h('div', { class: 'console-buttons' }, run, stop, clear),
  );

  let text = load() || EXAMPLES[0].source;
  /** @type {ReturnType<typeof import('../editor/editor.js').createEditor> | null} */
  let editor = null;
  fill(box, h('pre', { class: 'editor-wait' }, text));
  let running = false;

  async function openEditor() {
    const { createEditor } = await import('../editor/editor.js');
    fill(box);
    editor = createEditor(box, text, {
      onRun: () => void start(),
      onChange: (changed) => {
        text = changed;
        keep(text);
      },
    });
  }

  /** @param {string} source */
  async function use(source) {
    text = source;
    editor?.set(source);
    await start();
  }

  async function start() {
    if (running || run.disabled) return;
    running = true;
    run.disabled = true;
    stop.disabled = false;
    const began = performance.now();
    append(h('pre', { class: 'echo' }, summary(text)));
    try {
      const shown = await python.show(text);
      append(result(shown));
      append(h('p', { class: 'took' }, `${((performance.now() - began) / 1000).toFixed(2)} s`));
    } catch (error) {
      const { name, message } = /** @type {Error} */ (error);
      append(h('pre', { class: name === 'StoppedError' ? 'stopped' : 'traceback' }, message));
    } finally {
      running = false;
      stop.disabled = true;
      run.disabled = false;
    }
  }

  /** @param {Node | null} node */
  function append(node) {
    if (!node) return;
    const atEnd = output.scrollHeight - output.scrollTop - output.clientHeight < 40;
    output.append(node);
    while (output.childElementCount > MAX_LINES) output.firstElementChild?.remove();
    if (atEnd) output.scrollTop = output.scrollHeight;
  }

  return {
    openEditor,

    /** @param {boolean} can */
    setReady(can) {
      run.disabled = !can || running;
    },

    /** Printed lines. @param {Line[]} lines */
    print(lines) {
      const atEnd = output.scrollHeight - output.scrollTop - output.clientHeight < 40;
      output.append(...lines.map(({ stream, text: line }) => h('pre', { class: `line ${stream}` }, line || ' ')));
      while (output.childElementCount > MAX_LINES) output.firstElementChild?.remove();
      if (atEnd) output.scrollTop = output.scrollHeight;
    },
  };
}

/** @param {import('../types').Shown} shown @returns {Node | null} */
function result(shown) {
  if (shown.kind === 'none') return null;
  if (shown.kind === 'text') return h('pre', { class: 'value' }, shown.text);
  if (shown.kind === 'map') {
    const canvas = h('canvas', { class: 'value-map', role: 'img', 'aria-label': shown.text });
    putPixels(canvas, shown.rgba, shown.width, shown.height);
    canvas.style.aspectRatio = `${shown.width} / ${shown.height}`;
    const range = `${shown.low.toPrecision(4)} … ${shown.high.toPrecision(4)}`;
    return h('figure', { class: 'value' }, canvas, h('figcaption', null, `${shown.text}, ${range}`));
  }
  return h(
    'div',
    { class: 'value scroll-x' },
    h(
      'table',
      null,
      h('thead', null, h('tr', null, shown.columns.map((name) => h('th', { scope: 'col' }, name)))),
      h('tbody', null, shown.rows.map((row) => h('tr', null, row.map((cell) => h('td', null, cell))))),
    ),
    shown.total > shown.rows.length &&
      h('p', { class: 'muted small' }, `${formatCount(shown.total - shown.rows.length)} more rows`),
  );
}

/** The first line of code that says something. @param {string} source */
function summary(source) {
  const lines = source.trimEnd().split('\n');
  const first = lines.find((line) => line.trim() && !line.trim().startsWith('#')) ?? lines[0];
  return `>>> ${first}${lines.length > 1 ? '  …' : ''}`;
}

/** @param {string} text */
function keep(text) {
  try {
    localStorage.setItem(KEPT_TEXT, text);
  } catch {
    // Storage may be forbidden; then the text lives as long as the page.
  }
}

function load() {
  try {
    return localStorage.getItem(KEPT_TEXT) ?? '';
  } catch {
    return '';
  }
}
