/**
 * The notebook widget's front end, as anywidget loads it: a function that gives every model a front end of its own.
 * Python computes in the kernel; its GPU work is done here, on the GPU of the reader's computer.
 */

import { Link } from './embed/link.js';
import { Shell } from './embed/shell.js';
import { createTraitModel } from './embed/traits.js';
import { bytesOf } from './embed/wire.js';
import { h } from './dom.js';
import { shortError } from './format.js';
import { mount } from './mount.js';
import { readParts } from './parts.js';
import './styles/widget.css';

/**
 * @typedef {import('./embed/link.js').AnyModel} AnyModel
 * @typedef {import('./embed/traits.js').TraitModel} TraitModel
 */

const GONE = 'The kernel does not answer: it is busy, or was restarted. What is shown stays as it was; run the cell again.';
const SILENT = 'No kernel answers. It may be busy, or gone: run the cell again to bring this view to life.';
const STILL = 'This is a saved picture, no kernel is behind it. Run the cell to bring it to life.';

export default function widget() {
  /** @type {{ link: Link, model: TraitModel } | null} */
  let made = null;

  /** @param {AnyModel} traits */
  function begin(traits) {
    const link = new Link(traits);
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
      const view = new WidgetView(traits, el, link, model);
      return () => view.destroy();
    },
  };
}

/** A widget as one output cell shows it. */
class WidgetView {
  #traits;
  #link;
  #model;
  #shell;
  #host = h('div', { class: 'py-attn-widget' });
  /** Hides the picture that the notebook holds for where no JavaScript runs, while a view is shown. */
  #covered = h('style', null);
  /** @type {import('./mount.js').View | null} */
  #view = null;
  #events = ['state', 'message', 'still', 'title'].map((name) => `change:${name}`);
  #unsubscribe;
  #update = () => this.#show();
  #remount = () => {
    this.#hide();
    this.#show();
  };

  /** @param {AnyModel} traits @param {HTMLElement} el @param {Link} link @param {TraitModel} model */
  constructor(traits, el, link, model) {
    this.#traits = traits;
    this.#link = link;
    this.#model = model;
    el.append(this.#covered, this.#host);
    this.#shell = new Shell(this.#host, { onTheme: (isDark) => model.setDark(isDark) });
    this.#unsubscribe = [link.onChange(this.#update), model.on(['source', 'info'], this.#update)];
    for (const event of this.#events) traits.on(event, this.#update);
    traits.on('change:parts', this.#remount);
    link.countView(1);
    this.#show();
  }

  destroy() {
    for (const end of this.#unsubscribe) end();
    for (const event of this.#events) this.#traits.off(event, this.#update);
    this.#traits.off('change:parts', this.#remount);
    this.#hide();
    this.#shell.destroy();
    this.#host.remove();
    this.#covered.remove();
    this.#link.countView(-1);
  }

  get #failed() {
    return this.#traits.get('state') === 'error';
  }

  #show() {
    const { source, info } = this.#model.state;
    // Before `connect` is answered the kernel would draw without the GPU, and then again.
    const ready = this.#link.state === 'live' && !this.#failed && source !== null && info !== null;
    if (ready && !this.#view) {
      try {
        this.#view = mount(this.#shell.content, this.#model, { only: readParts(this.#traits.get('parts')).parts });
      } catch (error) {
        this.#shell.say('bad', 'The view could not be shown.', shortError(error));
        return;
      }
    } else if (this.#failed || this.#link.state === 'closed' || !source) this.#hide();
    this.#shell.setTitle(String(this.#traits.get('title') ?? ''));
    this.#say(ready, this.#showStill());
  }

  #hide() {
    this.#view?.destroy();
    this.#view = null;
  }

  /** Shows the saved picture where there is no view; says whether there is one. */
  #showStill() {
    const png = bytesOf(this.#traits.get('still'));
    const hasStill = png.length > 0 && !this.#failed;
    const outside = String(this.#traits.get('still_id') ?? '');
    // A notebook may hold the same picture for where no JavaScript runs.
    this.#covered.textContent = this.#view && outside ? `#${CSS.escape(outside)} { display: none }` : '';
    const shown = !this.#view && hasStill && !(outside && document.getElementById(outside));
    this.#shell.showStill(shown ? png : null, String(this.#traits.get('still_text') ?? ''));
    return hasStill;
  }

  /** @param {boolean} ready @param {boolean} hasStill */
  #say(ready, hasStill) {
    const message = String(this.#traits.get('message') ?? '');
    const { state } = this.#link;
    const shell = this.#shell;
    if (this.#failed) shell.say('bad', 'This cannot be shown.', message);
    else if (state === 'closed') shell.say('note', 'Closed.', 'The view was closed in Python; run the cell again to see it.');
    else if (state === 'silent') shell.say('note', '', this.#view ? GONE : hasStill ? STILL : SILENT);
    else if (!ready) shell.say('wait', 'Waiting for the kernel …');
    else shell.say('note', '', message);
  }
}
