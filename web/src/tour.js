/** A tour of a minute, for those who ask for it: a few steps that point at parts of the page. It remembers nothing. */

import { h } from './dom.js';
import { Click } from './pointer.js';

/** @typedef {{ target: string, title: string, text: () => string }} Step */

const GAP = 12; // CSS pixels between a part and the words about it
const MARGIN = 12; // to the edges of the window

/** @type {Step[]} */
const STEPS = [
  {
    target: '.heatmap-box',
    title: 'A row is one token',
    text: () =>
      'This is one attention map. Each row is a token of the sentence, and its colours show how much it attends to each other token. The weights of a row add up to 1.',
  },
  {
    target: '#overview .thumbs',
    title: 'A square is one head',
    text: () =>
      'The model reads the sentence in layers, and each layer has several heads that look for different things. These are the maps of all heads: a row of squares is a layer.',
  },
  {
    target: '#overview .thumb[aria-selected="true"]',
    title: 'Choose another head',
    text: () => `${Click()} a square, or move with the arrow keys: the large map shows that head. Lines beside the diagonal are heads that look at a neighbouring token.`,
  },
  {
    target: '#links',
    title: 'The strongest links',
    text: () => `The same in figures: what the chosen token attends to most. ${Click()} a cell of the map to choose another token.`,
  },
  {
    target: '.input-panel > .segmented',
    title: 'Your own text',
    text: () =>
      'Type a sentence of your own, or choose “Write”: a language model writes a text word by word, and the maps show what it looks at meanwhile.',
  },
  {
    target: '#kernel',
    title: 'Every number is checked',
    text: () => 'Run the kernels, the programs that compute the maps on your GPU, and compare their time and their error with numpy in float64.',
  },
];

/** @type {(() => void) | null} */
let end = null;

/** Begins the tour. @param {HTMLElement} opener gets the focus back */
export function startTour(opener) {
  end?.();
  const title = h('h2', { id: 'tour-title' });
  const text = h('p', { id: 'tour-text' });
  const count = h('span', { class: 'tour-count' });
  const back = h('button', { type: 'button', class: 'button compact', onclick: () => show(at - 1) }, 'Back');
  const next = h('button', { type: 'button', class: 'button compact primary', onclick: () => show(at + 1) }, 'Next');
  const close = h('button', { type: 'button', class: 'button compact', onclick: () => stop() }, 'End the tour');
  const box = h(
    'div',
    { class: 'tour', role: 'dialog', 'aria-labelledby': 'tour-title', 'aria-describedby': 'tour-text', tabIndex: -1, popover: 'manual' },
    title,
    text,
    h('div', { class: 'tour-foot' }, count, close, back, next),
  );
  const ring = h('div', { class: 'tour-ring', 'aria-hidden': 'true', popover: 'manual' });
  document.body.append(ring, box);
  ring.showPopover?.();
  box.showPopover?.();

  let at = 0;
  let frame = 0;
  /** Follows the part while the page scrolls to it. */
  const follow = () => {
    place(box, ring, document.querySelector(STEPS[at].target));
    frame = requestAnimationFrame(follow);
  };
  const show = (/** @type {number} */ step) => {
    if (step < 0) return;
    if (step >= STEPS.length) return stop();
    at = step;
    title.textContent = STEPS[at].title;
    text.textContent = STEPS[at].text();
    count.textContent = `${at + 1} of ${STEPS.length}`;
    back.disabled = at === 0;
    next.textContent = at === STEPS.length - 1 ? 'Done' : 'Next';
    document.querySelector(STEPS[at].target)?.scrollIntoView({ block: 'center' });
    (next.matches(':focus') ? next : box).focus({ preventScroll: true });
  };
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === 'Escape') stop();
    else if (event.key === 'ArrowRight') show(at + 1);
    else if (event.key === 'ArrowLeft') show(at - 1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const stop = () => {
    cancelAnimationFrame(frame);
    box.remove();
    ring.remove();
    end = null;
    opener.focus({ preventScroll: true });
    opener.scrollIntoView({ block: 'nearest' });
  };
  end = stop;
  box.addEventListener('keydown', onKey);
  show(0);
  follow();
}

/** A button that begins the tour. */
export function tourButton() {
  const button = h('button', { type: 'button', class: 'button compact tour-button', onclick: () => startTour(button) }, 'Take the tour (1 minute)');
  return button;
}

/** Draws a ring around a part, and puts the words beside it, within the window. @param {HTMLElement} box @param {HTMLElement} ring @param {Element | null} part */
function place(box, ring, part) {
  const { clientWidth, clientHeight } = document.documentElement;
  const around = part?.getBoundingClientRect() ?? new DOMRect(0, 0, clientWidth, 0);
  const { width, height } = box.getBoundingClientRect();
  const inside = (/** @type {number} */ value, /** @type {number} */ size, /** @type {number} */ room) =>
    Math.max(MARGIN, Math.min(value, room - size - MARGIN));
  const right = around.right + GAP;
  const left = around.left - GAP - width;
  const below = around.bottom + GAP;
  const isBeside = right + width + MARGIN <= clientWidth || left >= MARGIN;
  const x = !isBeside ? around.left : left >= MARGIN && right + width + MARGIN > clientWidth ? left : right;
  const y = isBeside ? around.top : below + height + MARGIN <= clientHeight ? below : around.top - GAP - height;
  const across = inside(x, width, clientWidth);
  const top = inside(y, height, clientHeight);
  box.style.left = `${across}px`;
  box.style.top = `${top}px`;
  ring.hidden = !part;
  for (const [name, value] of Object.entries({ left: around.left, top: around.top, width: around.width, height: around.height })) {
    ring.style.setProperty(name, `${value}px`);
  }
}
