/**
 * Printed lines for the page: sent in batches, and no more of them than a reader will look at.
 *
 * @typedef {{ stream: 'out' | 'err', text: string }} Line
 */

const FIRST = 2000; // lines of a run that are shown as they come
const LAST = 100; // lines kept from the end of a run that printed more
const LINE_LENGTH = 4000;
const INTERVAL_MS = 50;

/** @param {(lines: Line[]) => void} send */
export function createOutput(send) {
  /** @type {Line[]} */
  let waiting = [];
  /** @type {Line[]} */
  let tail = [];
  let count = 0;
  let sent = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;

  function flush() {
    clearTimeout(timer);
    timer = undefined;
    sent = performance.now();
    if (waiting.length) send(waiting);
    waiting = [];
  }

  /** @param {'out' | 'err'} stream @param {string} text */
  function print(stream, text) {
    const line = { stream, text: text.length > LINE_LENGTH ? `${text.slice(0, LINE_LENGTH)} …` : text };
    count += 1;
    if (count > FIRST) {
      tail.push(line);
      if (tail.length > 2 * LAST) tail = tail.slice(-LAST);
      return;
    }
    waiting.push(line);
    // A loop that prints without awaiting lets no timer fire, so the clock is looked at here too.
    if (performance.now() - sent > INTERVAL_MS) flush();
    else timer ??= setTimeout(flush, INTERVAL_MS);
  }

  /** Ends a run: what was held back goes out, with the number of lines that do not. */
  function end() {
    if (count > FIRST) {
      const last = tail.slice(-LAST);
      const dropped = count - FIRST - last.length;
      if (dropped > 0) {
        waiting.push({ stream: 'err', text: `… ${dropped.toLocaleString('en')} lines are not shown …` });
      }
      waiting.push(...last);
    }
    tail = [];
    count = 0;
    flush();
  }

  return { print, end };
}
