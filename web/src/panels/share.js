/** The button that copies the address of what is shown. */

import { fill, h, icon, ICONS } from '../dom.js';

const SAID_MS = 4000;

/**
 * @param {() => { link: string, lacks: string }} current the address, and what of the page it cannot hold ('' for nothing)
 */
export function shareButton(current) {
  const label = h('span', null, 'Share');
  const said = h('span', { class: 'share-said small', role: 'status' });
  const button = h(
    'button',
    { class: 'button compact share', type: 'button', title: 'Copy a link to what is shown: text, head, pins, zoom and style' },
    icon(ICONS.link),
    label,
  );
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  button.addEventListener('click', async () => {
    const { link, lacks } = current();
    clearTimeout(timer);
    try {
      await navigator.clipboard.writeText(link);
      fill(said, lacks ? `Link copied; it lacks ${lacks}.` : 'Link copied.');
    } catch {
      // Where the browser forbids it, the visitor copies it by hand.
      const field = h('input', { class: 'input', readOnly: true, value: link, 'aria-label': 'Link to what is shown', onblur: () => fill(said) });
      fill(said, field);
      field.select();
      return;
    }
    timer = setTimeout(() => fill(said), SAID_MS);
  });
  return h('span', { class: 'share-box' }, button, said);
}
