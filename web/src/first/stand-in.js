/** Answers the panels from the first picture, until what Python has opened takes its place. */

import { firstPicture } from './picture.js';

/** @param {import('../api.js').Call} ask Python, which answers once it is there */
export function standIn(ask) {
  const picture = firstPicture();
  let isLive = false;
  let goLive = () => {};
  const live = /** @type {Promise<void>} */ (new Promise((resolve) => (goLive = resolve)));

  return {
    source: picture.source,
    start: picture.start,

    /** Whether Python has opened a source. */
    get isLive() {
      return isLive;
    },

    /** Python opens its first source now. */
    end() {
      isLive = true;
      goLive();
    },

    /** What the picture cannot answer waits for Python, and for a source that Python can speak of. @type {import('../api.js').Call} */
    async call(method, payload, onProgress) {
      const made = isLive ? undefined : picture.answer(method, payload);
      if (made !== undefined) return made;
      if (!isLive) await live;
      return ask(method, payload, onProgress);
    },
  };
}
