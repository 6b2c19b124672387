/** The page's frame: header, places for the panels, footer. */

import { fill, h, icon, ICONS } from './dom.js';
import { card } from './mount.js';
import { explained } from './term.js';
import { tourButton } from './tour.js';

const ABOUT =
  'Type a sentence and see what every attention head of a real language model looks at. It runs on your GPU, and every number is checked.';

/**
 * Fills an element with the page, and returns the elements that the panels fill.
 * @param {HTMLElement} element
 */
export function layOut(element) {
  const adapter = h('span', { role: 'status' });
  const theme = h(
    'button',
    { class: 'button icon', type: 'button', 'aria-label': 'Light or dark', title: 'Light or dark' },
    icon(ICONS.sun),
  );
  const share = h('span');
  const boot = h('div', { class: 'boot' });
  const banner = h('div', { class: 'banner' });
  const input = h('section', { class: 'input-panel', 'aria-label': 'Input' });
  const write = h('section', { class: 'card write', id: 'write', 'aria-label': 'Write', hidden: true });
  const examples = h('div', { class: 'examples-zone' });
  const view = h('div');
  const panels = {
    edit: card('edit', 'Edit the score'),
    kernel: card('kernel', 'Kernel'),
    decode: card('decode', 'Decode'),
    console: card('console', 'Python console'),
  };
  for (const [id, panel] of Object.entries(panels)) panel.id = id;
  const main = h(
    'main',
    null,
    banner,
    h('div', { class: 'input-zone' }, input, boot),
    examples,
    write,
    view,
    h('div', { class: 'single' }, panels.edit),
    h('div', { class: 'pair' }, panels.kernel, panels.decode),
    h('div', { class: 'single' }, panels.console),
  );
  const nav = h('nav', { 'aria-label': 'Sections' });
  fill(element, h('div', { class: 'page' }, masthead(nav, adapter, share, theme), hero(), main, foot()));
  return { nav, examples, adapter, share, theme, boot, banner, input, write, view, ...panels };
}

/** @param {HTMLElement} nav @param {HTMLElement} adapter @param {HTMLElement} share @param {HTMLElement} theme */
function masthead(nav, adapter, share, theme) {
  return h(
    'header',
    { class: 'masthead' },
    h('a', { class: 'wordmark', href: '#app' }, mark(), 'py-attn'),
    nav,
    h('div', { class: 'end' }, adapter, share, theme),
  );
}

function hero() {
  return h(
    'section',
    { class: 'hero', 'aria-label': 'About this page' },
    h('h1', null, 'See what a language model looks at'),
    h('p', null, explained(ABOUT, 'attention', 'head'), tourButton()),
  );
}

function foot() {
  return h(
    'footer',
    { class: 'foot' },
    h('span', null, 'Everything is computed in this tab; nothing is sent anywhere.'),
    h('span', null, 'Models: all-MiniLM-L6-v2 and SmolLM2-135M-Instruct (Apache-2.0). Python: Pyodide.'),
  );
}

function mark() {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('viewBox', '0 0 16 16');
  svg.setAttribute('aria-hidden', 'true');
  for (const [fillColor, d] of [
    ['#fcc488', 'M1 1h4v4H1z'],
    ['#f56b5c', 'M6 6h4v4H6z'],
    ['#b73779', 'M1 6h4v4H1zM11 11h4v4h-4z'],
    ['#721f81', 'M1 11h4v4H1zM6 11h4v4H6z'],
  ]) {
    const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
    path.setAttribute('d', d);
    path.setAttribute('fill', fillColor);
    svg.append(path);
  }
  return svg;
}
