/** What stands around a view on somebody else's page: a shadow tree of its own, light or dark, and a line of words. */

import { fill, h } from '../dom.js';
import styles from '../styles/embed.css?inline';
import { followHost } from '../theme.js';

/** @type {CSSStyleSheet | undefined} one for all views of a page */
let sheet;

/**
 * @param {HTMLElement} host gets a shadow root, if it has none yet
 * @param {{ onTheme: (isDark: boolean) => void }} listeners
 */
export function createShell(host, { onTheme }) {
  const shadow = host.shadowRoot ?? host.attachShadow({ mode: 'open' });
  sheet ??= new CSSStyleSheet();
  if (!sheet.cssRules.length) sheet.replaceSync(styles);
  shadow.adoptedStyleSheets = [sheet];
  const title = h('p', { class: 'shell-title', hidden: true, dir: 'auto' });
  const words = h('div', { class: 'shell-words', role: 'status', hidden: true });
  const still = h('div', { class: 'shell-still', hidden: true });
  const content = h('div', { class: 'shell-content' });
  const root = h('div', { class: 'py-attn' }, title, words, still, content);
  shadow.replaceChildren(root);
  // JupyterLab's shortcuts look at keys first; the arrows belong to the map while it has the focus.
  host.dataset.lmSuppressShortcuts = 'true';

  let isDark = false;
  /** @type {'light' | 'dark' | ''} */
  let chosen = '';
  /** @type {boolean | null} */
  let told = null;
  function apply() {
    const now = chosen ? chosen === 'dark' : isDark;
    root.dataset.theme = now ? 'dark' : 'light';
    root.dataset.chosen = String(Boolean(chosen));
    if (now !== told) onTheme((told = now));
  }
  const unfollow = followHost(host, (now) => {
    isDark = now;
    apply();
  });

  return {
    content,

    /** A theme of the view's own; '' follows the host. @param {'light' | 'dark' | ''} theme */
    setTheme(theme) {
      chosen = theme;
      apply();
    },

    /** What is shown, in the words of who made it. @param {string} text */
    setTitle(text) {
      title.textContent = text;
      title.title = text;
      title.hidden = !text;
    },

    /**
     * Something to read above the view, or in its place; '' takes it away.
     * @param {'wait' | 'bad' | 'note'} tone @param {string} title @param {string} [rest] @param {number} [share] of a work that is done
     */
    say(tone, title, rest = '', share) {
      words.hidden = !title && !rest;
      words.dataset.tone = tone;
      fill(
        words,
        title && h('strong', null, title),
        title && rest ? ' ' : null,
        rest,
        share !== undefined && h('progress', { max: 1, value: share, 'aria-label': title }),
      );
    },

    /** A picture in the place of the view; null takes it away. @param {Uint8Array<ArrayBuffer> | null} png @param {string} text what it shows */
    showStill(png, text) {
      const picture = png?.length ? URL.createObjectURL(new Blob([png], { type: 'image/png' })) : '';
      // Not earlier: a picture that is taken away while it loads would be an error in the console.
      const loaded = () => URL.revokeObjectURL(picture);
      still.hidden = !picture;
      fill(still, picture && h('figure', { class: 'card' }, h('img', { src: picture, alt: text, onload: loaded, onerror: loaded }), h('figcaption', null, text)));
    },

    destroy() {
      unfollow();
      shadow.replaceChildren();
    },
  };
}
