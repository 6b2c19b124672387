/** The bench page: one button, a table that fills, a picture, two files. */

import { fill } from '../dom.js';
import { shortError } from '../format.js';
import { mountAdapter, mountBoot } from '../panels/status.js';
import { Runtime } from '../runtime/client.js';
import { watchTheme } from '../theme.js';
import { layOut } from './layout.js';
import { toMarkdown } from './markdown.js';
import { readOptions } from './options.js';
import { roofline } from './roofline.js';
import { runBench } from './run.js';
import { measureStart } from './start.js';
import { showCeilings, showModel, showStarts, showSummary, showTable } from './table.js';

/** @typedef {import('./types').Report} Report */

const options = readOptions(location.search);
const runtime = new Runtime(new URL('.', document.baseURI).href);
const page = layOut(/** @type {HTMLElement} */ (document.getElementById('app')), () => latest);
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
  page.modelCard.hidden = !report.model.length;
  showModel(page.model, report);
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
