/** A Python console that runs its text as `window.pyAttn.run` does. */

import { fill, h } from '../dom.js';
import { EXAMPLES } from '../editor/examples.js';
import { keepText, keptText } from '../storage.js';
import { append, resultElement, summary } from './console-output.js';
import { editorHint, heading } from './elements.js';

/**
 * @typedef {import('../runtime/output.js').Line} Line
 *
 * @typedef {object} Python
 * @property {(source: string) => Promise<import('../types').Shown>} show
 * @property {() => void} stop
 * @property {(text: string, position: number) => Promise<import('../editor/editor.js').Names>} complete
 *
 * @typedef {object} Panel
 * @property {Python} python
 * @property {ReturnType<typeof buildView>} view
 * @property {string} text in the editor
 * @property {ReturnType<typeof import('../editor/editor.js').createEditor> | null} editor null until it is loaded
 * @property {boolean} running
 * @property {string} noGpu why there is no WebGPU, '' where there is
 */

const KEPT_TEXT = 'py-attn.console';
const WITHOUT = 'pa.reference computes the same with numpy, and page.weights works here too.';

/**
 * @param {HTMLElement} element
 * @param {Python} python
 */
export function mountConsole(element, python) {
  const view = buildView({ start: () => void start(panel), stop: () => python.stop(), use: (source) => void use(panel, source) });
  fill(element, ...view.parts);
  /** @type {Panel} */
  const panel = { python, view, text: keptText(KEPT_TEXT) || EXAMPLES[0].source, editor: null, running: false, noGpu: '' };
  fill(view.box, h('pre', { class: 'editor-wait' }, panel.text));

  return {
    openEditor: () => openEditor(panel),

    /** @param {boolean} can @param {string} [noGpu] why there is no WebGPU, '' where there is */
    setReady(can, noGpu = '') {
      panel.noGpu = noGpu;
      view.run.disabled = !can || panel.running;
    },

    /** Printed lines. @param {Line[]} lines */
    print(lines) {
      append(view.output, ...lines.map(({ stream, text }) => h('pre', { class: `line ${stream}` }, text || ' ')));
    },
  };
}

/** @param {{ start: () => void, stop: () => void, use: (source: string) => void }} actions */
function buildView(actions) {
  const run = h('button', { class: 'button primary', type: 'button', disabled: true, onclick: actions.start }, 'Run', h('kbd', null, 'Ctrl ↵'));
  const stop = h('button', { class: 'button', type: 'button', disabled: true, onclick: actions.stop }, 'Stop');
  const output = h('div', { class: 'output', role: 'log', 'aria-label': 'Output', tabIndex: 0 });
  const clear = h('button', { class: 'button', type: 'button', onclick: () => fill(output) }, 'Clear');
  const box = h('div', { class: 'editor' });
  const examples = h(
    'div',
    { class: 'examples', role: 'group', 'aria-label': 'Examples' },
    EXAMPLES.map(({ name, source }) =>
      h('button', { class: 'button compact', type: 'button', onclick: () => actions.use(source) }, name),
    ),
  );
  const parts = [
    h('header', null, about(), examples),
    h('div', { class: 'console-body' }, box, output),
    h('div', { class: 'console-buttons' }, run, stop, clear, editorHint()),
  ];
  return { parts, run, stop, box, output };
}

function about() {
  return heading(
    'Python',
    'The Python that runs this page: ',
    h('code', null, 'pa'),
    ', ',
    h('code', null, 'np'),
    ', ',
    h('code', null, 'device'),
    ' and ',
    h('code', null, 'page'),
    ' (what this page shows) are defined, await works at the top level, and the value of the last expression is shown.',
  );
}

/** @param {Panel} panel */
async function openEditor(panel) {
  const { createEditor } = await import('../editor/editor.js');
  const { box } = panel.view;
  fill(box);
  panel.editor = createEditor(box, panel.text, {
    complete: (text, position) => panel.python.complete(text, position),
    onRun: () => void start(panel),
    onChange: (text) => {
      panel.text = text;
      keepText(KEPT_TEXT, text);
    },
  });
}

/** Runs an example. @param {Panel} panel @param {string} source */
async function use(panel, source) {
  panel.text = source;
  panel.editor?.set(source);
  await start(panel);
}

/** @param {Panel} panel */
async function start(panel) {
  const { python, text, view } = panel;
  const { run, stop, output } = view;
  if (panel.running || run.disabled) return;
  const example = EXAMPLES.find(({ source }) => source === text);
  if (panel.noGpu && example?.needsGpu) {
    append(output, h('p', { class: 'stopped' }, `“${example.name}” runs kernels on WebGPU, which is not here, so it was not run. ${WITHOUT}`));
    return;
  }
  panel.running = true;
  run.disabled = true;
  stop.disabled = false;
  const began = performance.now();
  append(output, h('pre', { class: 'echo' }, summary(text)));
  try {
    const result = resultElement(await python.show(text));
    const took = h('p', { class: 'took' }, `${((performance.now() - began) / 1000).toFixed(2)} s`);
    append(output, ...(result ? [result] : []), took);
  } catch (error) {
    append(output, failure(panel, /** @type {Error} */ (error)));
  } finally {
    panel.running = false;
    stop.disabled = true;
    run.disabled = false;
  }
}

/** @param {Panel} panel @param {Error} error */
function failure({ noGpu }, { name, message }) {
  if (name === 'StoppedError') return h('pre', { class: 'stopped' }, message);
  // A traceback would end in the advice to request a device, which cannot work here.
  if (noGpu && name === 'WebGPUUnavailableError') return h('p', { class: 'stopped' }, `This needs WebGPU, which is not here. ${WITHOUT}`);
  return h('pre', { class: 'traceback' }, message);
}
