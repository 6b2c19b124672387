/** What surrounds a view on another page: a shadow tree of its own, light or dark, with a line for messages. */

import { fill, h } from '../dom.js';
import styles from '../styles/embed.css?inline';
import { followHost } from '../theme.js';

/** @type {CSSStyleSheet | undefined} */
let sheet;

export class Shell {
  /** What the view fills. */
  content = h('div', { class: 'shell-content' });
  #title = h('p', { class: 'shell-title', hidden: true, dir: 'auto' });
  #words = h('div', { class: 'shell-words', role: 'status', hidden: true });
  #still = h('div', { class: 'shell-still', hidden: true });
  #root = h('div', { class: 'py-attn' }, this.#title, this.#words, this.#still, this.content);
  #isHostDark = false;
  /** @type {'light' | 'dark' | ''} the view's own theme; '' follows the host */
  #chosen = '';
  /** @type {boolean | null} what `onTheme` was called with last */
  #isDark = null;
  #shadow;
  #onTheme;
  #unfollow;

  /**
   * @param {HTMLElement} host gets a shadow root, if it has none yet
   * @param {{ onTheme: (isDark: boolean) => void }} listeners
   */
  constructor(host, { onTheme }) {
    this.#onTheme = onTheme;
    this.#shadow = host.shadowRoot ?? host.attachShadow({ mode: 'open' });
    this.#shadow.adoptedStyleSheets = [sharedSheet()];
    this.#shadow.replaceChildren(this.#root);
    // JupyterLab's shortcuts look at keys first; the arrows belong to the map while it has the focus.
    host.dataset.lmSuppressShortcuts = 'true';
    this.#unfollow = followHost(host, (isDark) => {
      this.#isHostDark = isDark;
      this.#applyTheme();
    });
  }

  /** A theme of the view's own; '' follows the host. @param {'light' | 'dark' | ''} theme */
  setTheme(theme) {
    this.#chosen = theme;
    this.#applyTheme();
  }

  /** The title that the view's author gave it. @param {string} text */
  setTitle(text) {
    this.#title.textContent = text;
    this.#title.title = text;
    this.#title.hidden = !text;
  }

  /**
   * A message above the view, or instead of it; '' removes it.
   * @param {'wait' | 'bad' | 'note'} tone @param {string} title @param {string} [rest]
   * @param {number} [share] of the work that is done
   */
  say(tone, title, rest = '', share) {
    this.#words.hidden = !title && !rest;
    this.#words.dataset.tone = tone;
    fill(
      this.#words,
      title && h('strong', null, title),
      title && rest ? ' ' : null,
      rest,
      share !== undefined && h('progress', { max: 1, value: share, 'aria-label': title }),
    );
  }

  /**
   * A picture instead of the view; null removes it.
   * @param {Uint8Array<ArrayBuffer> | null} png @param {string} text what it shows
   */
  showStill(png, text) {
    const picture = png?.length ? URL.createObjectURL(new Blob([png], { type: 'image/png' })) : '';
    // Not earlier: a picture that is removed while it loads would be an error in the console.
    const loaded = () => URL.revokeObjectURL(picture);
    this.#still.hidden = !picture;
    const image = picture && h('img', { src: picture, alt: text, onload: loaded, onerror: loaded });
    fill(this.#still, image && h('figure', { class: 'card' }, image, h('figcaption', null, text)));
  }

  destroy() {
    this.#unfollow();
    this.#shadow.replaceChildren();
  }

  #applyTheme() {
    const isDark = this.#chosen ? this.#chosen === 'dark' : this.#isHostDark;
    this.#root.dataset.theme = isDark ? 'dark' : 'light';
    this.#root.dataset.chosen = String(Boolean(this.#chosen));
    if (isDark === this.#isDark) return;
    this.#isDark = isDark;
    this.#onTheme(isDark);
  }
}

/** One style sheet for all views of a page. */
function sharedSheet() {
  sheet ??= new CSSStyleSheet();
  if (!sheet.cssRules.length) sheet.replaceSync(styles);
  return sheet;
}
