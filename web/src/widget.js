/**
 * The notebook widget's front end, as anywidget loads it: a function that gives every model a front end of its own.
 * What computes is Python in the kernel; what it asks of a GPU is done here, on the viewer's.
 */

import { createLink } from './embed/link.js';
import { createShell } from './embed/shell.js';
import { createTraitModel } from './embed/traits.js';
import { bytesOf } from './embed/wire.js';
import { h } from './dom.js';
import { shortError } from './format.js';
import { mount } from './mount.js';
import './styles/widget.css';

/**
 * @typedef {import('./embed/link.js').AnyModel} AnyModel
 * @typedef {import('./embed/link.js').Link} Link
 * @typedef {ReturnType<typeof createTraitModel>} TraitModel
 */

const GONE = 'The kernel does not answer: it is busy, or was restarted. What is shown stays as it was; run the cell again.';
const SILENT = 'No kernel answers. It may be busy, or gone: run the cell again to bring this view to life.';
const STILL = 'This is a saved picture, no kernel is behind it. Run the cell to bring it to life.';

export default function widget() {
  /** @type {{ link: Link, model: TraitModel } | null} */
  let made = null;

  /** @param {AnyModel} traits */
  function begin(traits) {
    const link = createLink(traits);
    const model = createTraitModel(traits, link.call);
    const askInfo = () => {
      if (link.state !== 'live' || model.state.info) return;
      link.call('connect', {}).then((info) => model.set({ info }), () => {});
    };
    link.onChange(askInfo);
    made = { link, model };
    return made;
  }

  return {
    /** @param {{ model: AnyModel }} given */
    initialize({ model: traits }) {
      const { link, model } = begin(traits);
      return () => {
        model.end();
        link.close();
        made = null;
      };
    },

    /** @param {{ model: AnyModel, el: HTMLElement }} given */
    render({ model: traits, el }) {
      const { link, model } = made ?? begin(traits);
      return showView(traits, el, link, model);
    },
  };
}

/**
 * @param {AnyModel} traits @param {HTMLElement} el @param {Link} link @param {TraitModel} model
 * @returns {() => void} takes the view away
 */
function showView(traits, el, link, model) {
  const host = h('div', { class: 'py-attn-widget' });
  const covered = h('style', null);
  el.append(covered, host);
  const shell = createShell(host, { onTheme: (isDark) => model.setDark(isDark) });
  /** @type {import('./mount.js').View | null} */
  let view = null;

  function update() {
    const message = String(traits.get('message') ?? '');
    const failed = traits.get('state') === 'error';
    // Before `connect` is answered the kernel would draw without the GPU, and then again.
    const ready = link.state === 'live' && !failed && model.state.source !== null && model.state.info !== null;
    if (ready && !view) {
      try {
        view = mount(shell.content, model);
      } catch (error) {
        shell.say('bad', 'The view could not be shown.', shortError(error));
        return;
      }
    } else if (view && (failed || link.state === 'closed' || !model.state.source)) hide();
    shell.setTitle(String(traits.get('title') ?? ''));
    const png = bytesOf(traits.get('still'));
    const hasStill = png.length > 0 && !failed;
    const outside = String(traits.get('still_id') ?? '');
    // A notebook may hold the same picture for where no JavaScript runs.
    covered.textContent = view && outside ? `#${CSS.escape(outside)} { display: none }` : '';
    const shown = !view && hasStill && !(outside && document.getElementById(outside));
    shell.showStill(shown ? png : null, String(traits.get('still_text') ?? ''));
    if (failed) shell.say('bad', 'This cannot be shown.', message);
    else if (link.state === 'closed') shell.say('note', 'Closed.', 'The view was closed in Python; run the cell again to see it.');
    else if (link.state === 'silent') shell.say('note', '', view ? GONE : hasStill ? STILL : SILENT);
    else if (!ready) shell.say('wait', 'Waiting for the kernel …');
    else shell.say('note', '', message);
  }

  function hide() {
    view?.destroy();
    view = null;
  }

  const ends = [link.onChange(update), model.on(['source', 'info'], update)];
  const names = ['state', 'message', 'still', 'title'].map((name) => `change:${name}`);
  for (const name of names) traits.on(name, update);
  link.countView(1);
  update();

  return () => {
    for (const end of ends) end();
    for (const name of names) traits.off(name, update);
    hide();
    shell.destroy();
    host.remove();
    covered.remove();
    link.countView(-1);
  };
}
