/** How far the model's download is, and a button that cancels it. */

import { h } from '../dom.js';
import { formatBytes } from '../format.js';

/** @param {() => void} onCancel @param {string} [name] of the model */
export function buildLoading(onCancel, name = 'MiniLM') {
  const bar = h('progress', { max: 1, value: 0, 'aria-label': 'Loading the model' });
  const text = h('span', { class: 'small' }, '');
  const cancel = h('button', { class: 'button compact', type: 'button', onclick: onCancel }, 'Cancel');
  return {
    element: h('div', { class: 'model-loading', hidden: true }, text, bar, cancel),

    /** @param {string} stage @param {number} loaded @param {number} total bytes */
    show(stage, loaded, total) {
      if (stage === 'vocabulary') return; // small beside the weights
      bar.value = total ? loaded / total : 0;
      cancel.disabled = stage === 'upload'; // which takes a moment only
      text.textContent = `${stage === 'upload' ? 'Uploading' : 'Loading'} ${name} · ${formatBytes(loaded)} of ${formatBytes(total)}`;
    },
  };
}
