/** Measures text that is not on the page. */

import { context2d } from '../dom.js';

/** @type {CanvasRenderingContext2D | null} */
let context = null;

/** The width of a text in CSS pixels. @param {string} text @param {string} font as in CSS */
export function textWidth(text, font) {
  context ??= context2d(document.createElement('canvas'));
  context.font = font;
  return context.measureText(text).width;
}
