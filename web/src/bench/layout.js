/** The bench page's frame: header, the button, places for what is measured, footer. */

import mark from '../icon.svg?no-inline';
import { fill, h, icon, ICONS } from '../dom.js';
import { toggleTheme } from '../theme.js';
import { toMarkdown } from './markdown.js';

/** @typedef {import('./types').Report} Report */

const START =
  'When each stage began after navigation, with an empty cache and with a full one; the first map is what a visitor waits for.';
const WORKLOADS =
  'Checked against float64 on sampled rows with outputs poisoned by NaN, then timed. GPU time: medians over passes of many ' +
  'calls. Wall: each of many calls in a row until the GPU is done, the same steps for the peers, whose inputs and outputs ' +
  'stay on the GPU too.';

const MODEL =
  'SmolLM2-135M-Instruct writes: its greedy text is compared with another implementation’s, then it is timed, wall time unless ' +
  'said otherwise. The peer reads the same file.';

/**
 * Fills an element with the page, and returns the elements that change.
 * @param {HTMLElement} element
 * @param {() => Report | null} report what the files are made from
 */
export function layOut(element, report) {
  const adapter = h('span', { role: 'status' });
  const button = h('button', { class: 'button primary', type: 'button', disabled: true }, 'Run the bench');
  const status = h('p', { class: 'bench-status muted', role: 'status' }, 'Starting Python …');
  const progress = h('progress', { max: 1, value: 0, hidden: true, 'aria-label': 'Progress' });
  const boot = h('div', { class: 'boot' });
  const { box, ...places } = results(report);
  const start = h('div', { class: 'bench-start' }, button, h('div', { class: 'bench-line' }, status, progress));
  fill(element, h('div', { class: 'page' }, masthead(adapter), hero(), h('main', null, start, boot, box), foot()));
  return { adapter, boot, button, status, progress, results: box, ...places };
}

/** @param {() => Report | null} report */
function results(report) {
  const ceilings = h('dl', { class: 'ceilings' });
  const table = h('div', { class: 'scroll-x', tabIndex: 0, role: 'region', 'aria-label': 'Table of workloads' });
  const summary = h('ul', { class: 'bench-summary' });
  const picture = h('figure', { class: 'picture scroll-x' });
  const model = h('div', { class: 'scroll-x', tabIndex: 0, role: 'region', 'aria-label': 'Tables of the language model' });
  const starts = h('div', { class: 'scroll-x' });
  const frame = h('div', { class: 'start-frame' });
  const files = h(
    'div',
    { class: 'files' },
    fileButton('Markdown', 'py-attn-bench.md', 'text/markdown', report, toMarkdown),
    fileButton('JSON', 'py-attn-bench.json', 'application/json', report, (made) => `${JSON.stringify(made, null, 2)}\n`),
  );
  const startCard = section('Start of the page', START, h('span'), starts, frame);
  const modelCard = section('The language model', MODEL, h('span'), model);
  for (const card of [startCard, modelCard]) card.hidden = true;
  const box = h(
    'div',
    { class: 'bench-results', id: 'results', hidden: true },
    section('Ceilings', 'What this adapter can do at best, measured just now.', h('span'), ceilings),
    section('Workloads', WORKLOADS, files, summary, table),
    section('Roofline', 'Rate over arithmetic intensity; the line is what the ceilings allow.', h('span'), picture),
    modelCard,
    startCard,
  );
  return { box, ceilings, table, summary, picture, files, model, modelCard, starts, frame, startCard };
}

/** @param {string} title @param {string} text @param {HTMLElement} end @param {HTMLElement[]} content */
function section(title, text, end, ...content) {
  const header = h('header', null, h('div', null, h('h2', null, title), h('p', null, text)), end);
  return h('section', { class: 'card', 'aria-label': title }, header, content);
}

/**
 * @param {string} label @param {string} name @param {string} type
 * @param {() => Report | null} report @param {(report: Report) => string} text
 */
function fileButton(label, name, type, report, text) {
  const onclick = () => {
    const made = report();
    if (made) download(name, type, text(made));
  };
  return h('button', { class: 'button compact', type: 'button', disabled: true, onclick }, label);
}

/** @param {string} name @param {string} type @param {string} text */
function download(name, type, text) {
  const link = h('a', { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** @param {HTMLElement} adapter */
function masthead(adapter) {
  const theme = { class: 'button icon', type: 'button', 'aria-label': 'Light or dark', title: 'Light or dark', onclick: toggleTheme };
  return h(
    'header',
    { class: 'masthead' },
    h('a', { class: 'wordmark', href: './' }, h('img', { src: mark, alt: '', width: 22, height: 22 }), 'py-attn'),
    h('nav', { 'aria-label': 'Pages' }, h('a', { href: './' }, 'The page'), h('a', { href: './bench.html', 'aria-current': 'page' }, 'The bench')),
    h('div', { class: 'end' }, adapter, h('button', theme, icon(ICONS.sun))),
  );
}

function hero() {
  return h(
    'section',
    { class: 'hero', 'aria-label': 'About this page' },
    h('h1', null, 'How fast, on your GPU'),
    h('p', null, 'Every kernel against this adapter’s own ceilings, and against onnxruntime-web, jax-js and wllama in the same browser in the same run.'),
  );
}

function foot() {
  return h('footer', { class: 'foot' }, h('span', null, 'Everything is computed in this tab; nothing is sent anywhere unless the address asks for a report.'));
}
