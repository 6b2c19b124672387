/** The bench page: one button, a table that fills, a picture, two files. */

import mark from '../icon.svg?no-inline';
import { fill, h, icon, ICONS } from '../dom.js';
import { shortError } from '../format.js';
import { mountAdapter, mountBoot } from '../panels/status.js';
import { Runtime } from '../runtime/client.js';
import { toggleTheme, watchTheme } from '../theme.js';
import { toMarkdown } from './markdown.js';
import { readOptions } from './options.js';
import { roofline } from './roofline.js';
import { runBench } from './run.js';
import { measureStart } from './start.js';
import { showCeilings, showStarts, showSummary, showTable } from './table.js';

/** @typedef {import('./types').Report} Report */

const options = readOptions(location.search);
const runtime = new Runtime(new URL('.', document.baseURI).href);
const page = layOut(/** @type {HTMLElement} */ (document.getElementById('app')));
const reporter = createReporter(options.report);

/** @type {Report | null} */
let latest = null;

const door = {
  get ready() {
    return runtime.ready;
  },
  /** Runs Python in the worker. @param {string} source */
  run: (source) => runtime.run(source),
  /** The report so far, as data. */
  get report() {
    return latest;
  },
};
Object.assign(window, { pyAttn: door });

const boot = mountBoot(page.boot);
const adapter = mountAdapter(page.adapter);
watchTheme(() => {});
runtime.addEventListener('progress', (event) => boot.show(/** @type {CustomEvent} */ (event).detail));
runtime.addEventListener('lost', (event) => say(`The GPU was lost: ${/** @type {CustomEvent} */ (event).detail}`));
runtime.ready.then(
  (info) => {
    adapter.show(info);
    boot.done();
    page.boot.hidden = true;
    if (!info.webgpu) return say(`${info.reason} There is nothing to measure without it.`);
    page.button.disabled = false;
    if (!options.start) say(`Ready. ${info.software ? 'Small shapes, about two minutes.' : 'Full shapes, a few minutes.'} Leave this tab in front.`);
  },
  (error) => {
    adapter.set('failed');
    boot.fail(shortError(error), () => location.reload());
  },
);
page.button.addEventListener('click', () => void start());
if (options.start) void start();

async function start() {
  page.button.disabled = true;
  page.progress.hidden = false;
  try {
    const report = await runBench(runtime, options, {
      step(text, done, of) {
        say(`${text}${done < of ? ' …' : '.'}`);
        page.progress.max = of;
        page.progress.value = done;
      },
      changed: show,
      line: reporter.line,
      text: reporter.text,
      openPage: (visit) => measureStart(page.frame, visit),
    });
    say(`Done in ${Math.round(report.seconds)} s.`);
    reporter.line('report', report);
    reporter.line('markdown', { text: toMarkdown(report) });
  } catch (error) {
    say(`It stopped: ${shortError(error)}`);
    reporter.line('error', { message: String(/** @type {Error} */ (error).message) });
  }
  page.progress.hidden = true;
  page.button.disabled = false;
  page.button.lastChild && (page.button.lastChild.textContent = 'Run again');
  document.documentElement.dataset.bench = 'done';
  await reporter.done();
}

/** @param {Report} report */
function show(report) {
  latest = report;
  showCeilings(page.ceilings, report);
  showTable(page.table, report);
  showSummary(page.summary, report);
  fill(page.picture, roofline(report));
  showStarts(page.starts, report);
  page.startCard.hidden = !report.starts.length && !page.frame.firstChild;
  page.results.hidden = false;
  for (const button of page.files.children) /** @type {HTMLButtonElement} */ (button).disabled = false;
}

/** @param {string} text */
function say(text) {
  page.status.textContent = text;
}

/** Posts lines one after the other. @param {string | null} url */
function createReporter(url) {
  let last = Promise.resolve();
  const post = (/** @type {string} */ body) => {
    if (!url) return;
    last = last.then(() => fetch(url, { method: 'POST', body }).then(() => {}, () => {}));
  };
  return {
    /** @param {string} type @param {object} content */
    line: (type, content) => post(JSON.stringify({ type, ...content })),
    /** @param {string} lines to be read by people */
    text: (lines) => post(lines),
    async done() {
      post('DONE');
      await last;
    },
  };
}

/** @param {string} name @param {string} type @param {() => string} text */
function download(name, type, text) {
  const link = h('a', { href: URL.createObjectURL(new Blob([text()], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** @param {HTMLElement} element */
function layOut(element) {
  const adapterLine = h('span', { role: 'status' });
  const theme = h('button', { class: 'button icon', type: 'button', 'aria-label': 'Light or dark', title: 'Light or dark', onclick: toggleTheme }, icon(ICONS.sun));
  const button = h('button', { class: 'button primary', type: 'button', disabled: true }, 'Run the bench');
  const status = h('p', { class: 'bench-status muted', role: 'status' }, 'Starting Python …');
  const progress = h('progress', { max: 1, value: 0, hidden: true, 'aria-label': 'Progress' });
  const bootBox = h('div', { class: 'boot' });
  const ceilings = h('dl', { class: 'ceilings' });
  const table = h('div', { class: 'scroll-x', tabIndex: 0, role: 'region', 'aria-label': 'Table of workloads' });
  const summary = h('ul', { class: 'bench-summary' });
  const picture = h('figure', { class: 'picture scroll-x' });
  const starts = h('div', { class: 'scroll-x' });
  const frame = h('div', { class: 'start-frame' });
  const files = h(
    'div',
    { class: 'files' },
    h('button', { class: 'button compact', type: 'button', disabled: true, onclick: () => latest && download('py-attn-bench.md', 'text/markdown', () => toMarkdown(/** @type {Report} */ (latest))) }, 'Markdown'),
    h('button', { class: 'button compact', type: 'button', disabled: true, onclick: () => latest && download('py-attn-bench.json', 'application/json', () => `${JSON.stringify(latest, null, 2)}\n`) }, 'JSON'),
  );
  const heading = (/** @type {string} */ title, /** @type {string} */ text, /** @type {Node} */ end) =>
    h('header', null, h('div', null, h('h2', null, title), h('p', null, text)), end);
  const startCard = h(
    'section',
    { class: 'card', 'aria-label': 'Start of the page', hidden: true },
    heading('Start of the page', 'When each stage began after navigation, with nothing kept and with everything kept; the first map is what a visitor waits for.', h('span')),
    starts,
    frame,
  );
  const results = h(
    'div',
    { class: 'bench-results', id: 'results', hidden: true },
    h('section', { class: 'card', 'aria-label': 'Ceilings' }, heading('Ceilings', 'What this adapter can do at best, measured just now.', h('span')), ceilings),
    h(
      'section',
      { class: 'card', 'aria-label': 'Workloads' },
      heading('Workloads', 'Checked against float64 on sampled rows with outputs poisoned by NaN, then timed. GPU time: medians over passes of many calls. Wall: each of many calls in a row until the GPU is done, the same steps for the peers, whose inputs and outputs stay on the GPU too.', files),
      summary,
      table,
    ),
    h('section', { class: 'card', 'aria-label': 'Roofline' }, heading('Roofline', 'Rate over arithmetic intensity; the line is what the ceilings allow.', h('span')), picture),
    startCard,
  );
  fill(
    element,
    h(
      'div',
      { class: 'page' },
      h(
        'header',
        { class: 'masthead' },
        h('a', { class: 'wordmark', href: './' }, h('img', { src: mark, alt: '', width: 22, height: 22 }), 'py-attn'),
        h('nav', { 'aria-label': 'Pages' }, h('a', { href: './' }, 'The page'), h('a', { href: './bench.html', 'aria-current': 'page' }, 'The bench')),
        h('div', { class: 'end' }, adapterLine, theme),
      ),
      h(
        'div',
        { class: 'hero' },
        h('h1', null, 'How fast, on your GPU'),
        h('p', null, 'Every kernel against this adapter’s own ceilings, and against onnxruntime-web and jax-js in the same browser in the same run.'),
      ),
      h('main', null, h('div', { class: 'bench-start' }, button, h('div', { class: 'bench-line' }, status, progress)), bootBox, results),
      h('footer', { class: 'foot' }, h('span', null, 'Everything is computed in this tab; nothing is sent anywhere unless the address asks for a report.')),
    ),
  );
  return { adapter: adapterLine, boot: bootBox, button, status, progress, ceilings, table, summary, picture, files, results, starts, frame, startCard };
}
