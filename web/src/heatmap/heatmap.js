/** A square map of which a cell is chosen and cells are pinned, for the mouse, fingers and the keyboard, that can be zoomed and panned. */

import { context2d, h } from '../dom.js';
import { listenToGestures } from './gestures.js';
import { createMap, drawFor, growTokens, isZoomed, onScreen, redraw, resize, revealCursor, sceneOf, setTokens, setView, zoomBy } from './map.js';
import { clamp, fit } from './view.js';

/**
 * @param {HTMLElement} element
 * @param {import('./map.js').Listeners} listeners
 */
export function mountHeatmap(element, listeners) {
  const canvas = h('canvas', {
    class: 'heatmap',
    tabIndex: 0,
    role: 'application',
    'aria-roledescription': 'heat map',
    'aria-label': 'Attention map',
  });
  element.append(canvas);
  const map = createMap(element, canvas, context2d(canvas), listeners);
  const sizes = new ResizeObserver(() => resize(map));
  sizes.observe(element);
  listenToGestures(map);
  const paper = matchMedia('print');
  const media = [paper, matchMedia('(forced-colors: active)')];
  const onMedia = () => drawFor(map, paper.matches);
  for (const each of media) each.addEventListener('change', onMedia);

  return {
    canvas,

    /** Begins with another source. @param {string[]} tokens */
    setTokens: (tokens) => setTokens(map, tokens),

    /** Goes on with a text that is longer or shorter now. @param {string[]} tokens */
    growTokens: (tokens) => growTokens(map, tokens),

    /** @param {import('./draw.js').Picture | null} picture */
    setPicture(picture) {
      map.picture = picture;
      redraw(map);
    },

    /** Chooses a cell without telling the listeners. @param {number} row @param {number} column */
    setChosen(row, column) {
      if (row === map.row && column === map.column) return;
      Object.assign(map, { row, column });
      revealCursor(map);
      redraw(map);
    },

    /** @param {import('./map.js').Cell[]} pins */
    setPins(pins) {
      map.pins = pins;
      redraw(map);
    },

    /** Shows strips beside the plot, which are empty until they are known. @param {boolean} shown @param {import('./margins.js').Strips | null} margins */
    setMargins(shown, margins) {
      const changes = shown !== map.hasMargins;
      Object.assign(map, { hasMargins: shown, margins });
      redraw(map);
      if (changes) listeners.onView();
    },

    /** What is on screen, null for the whole map. */
    get view() {
      return isZoomed(map) ? map.view : null;
    },

    /** Shows a part of the map, or with null all of it. @param {import('./view.js').View | null} view */
    show: (view) => setView(map, clamp(view ?? fit(map.tokens.length), map.tokens.length)),

    /** The cells on screen, and how many pixels there are for them. */
    visible: () => onScreen(map),
    scene: () => sceneOf(map),
    /** @param {number} factor */
    zoomBy: (factor) => zoomBy(map, factor),
    fit: () => setView(map, fit(map.tokens.length)),

    /** Draws again in the colours that apply now. */
    recolor() {
      map.theme = null;
      redraw(map);
    },

    destroy() {
      sizes.disconnect();
      for (const each of media) each.removeEventListener('change', onMedia);
      cancelAnimationFrame(map.frame);
      map.frame = -1; // so that no later change draws any more
    },
  };
}
