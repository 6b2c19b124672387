/** Files that are dropped anywhere on the page. */

import { h } from '../dom.js';

/** @param {(files: File[]) => void} onDrop */
export function mountDrop(onDrop) {
  const overlay = h(
    'div',
    { class: 'drop-overlay', hidden: true },
    h('p', null, h('strong', null, 'Drop the file to see its attention'), h('span', null, 'It is read in this tab and never sent anywhere.')),
  );
  document.body.append(overlay);
  const on = (/** @type {'dragenter' | 'dragover' | 'dragleave' | 'drop'} */ type, /** @type {(event: DragEvent) => void} */ listener) =>
    addEventListener(type, (event) => {
      // Text that is dragged goes where it is dropped: into an editor, for example.
      if (event.dataTransfer?.types.includes('Files')) listener(event);
    });
  on('dragenter', () => (overlay.hidden = false));
  on('dragover', (event) => {
    // Without this the browser would leave the page and show the file.
    event.preventDefault();
    if (event.dataTransfer) event.dataTransfer.dropEffect = 'copy';
  });
  on('dragleave', (event) => {
    if (!event.relatedTarget) overlay.hidden = true; // it has left the window
  });
  on('drop', (event) => {
    event.preventDefault();
    overlay.hidden = true;
    onDrop([...(event.dataTransfer?.files ?? [])]);
  });
}
