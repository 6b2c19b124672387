/** Keeps the page's address and its state the same: every step that a visitor takes can be taken back. */

import { decode, encode } from './address.js';

/**
 * @typedef {import('./address.js').Address} Address
 * @typedef {{ text?: string, mod?: string, writing?: string }} Kept texts that are too long for the address; they outlive a reload
 */

/**
 * A change is written at once, as a reload asks for what was written before it. Changes that follow each other, such as a text
 * that grows, are written this often, and only so many of them earlier: Safari allows 100 in 30 seconds.
 */
const WRITE_MS = 350;
const AT_ONCE = 8;
/** Changes of these make a step for the browser's Back; those of others belong to the step they were made in. */
const STEPS = /** @type {(keyof Address)[]} */ (['input', 'layer', 'head', 'heads', 'over', 'reading', 'openAs', 'direction', 'compare', 'mod', 'wgsl']);
/** Steps that follow each other faster, as when arrow keys are held, are one. */
const STEP_MS = 1000;

/**
 * @param {Address} start the state in which the page begins
 * @param {() => Address} read the state as it is
 * @param {(address: Address, problems: string[]) => void} follow shows what another address asks for
 */
export function keepAddress(start, read, follow) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let isPending = false;
  let written = readAddress(start).address;
  let stepped = -Infinity;
  /** Until when the writes so far would have taken if none had been earlier than WRITE_MS after the one before. */
  let taken = 0;

  const settle = () => {
    clearTimeout(timer);
    isPending = false;
  };
  // The page goes where an address leads in several steps, of which the first ones are not written.
  const isFollowing = () => (taken = performance.now() + (AT_ONCE + 1) * WRITE_MS);
  const write = () => {
    settle();
    const now = read();
    const fragment = encode(now, start);
    const kept = tooLong(now, fragment);
    if (fragment === location.hash && JSON.stringify(kept) === JSON.stringify(history.state?.kept ?? {})) return;
    const isStep = stepOf(now) !== stepOf(written);
    const isNew = isStep && performance.now() - stepped > STEP_MS;
    if (isStep) stepped = performance.now();
    history[isNew ? 'pushState' : 'replaceState']({ kept }, '', fragment || location.pathname + location.search);
    written = now;
    taken = Math.max(taken, performance.now()) + WRITE_MS;
  };
  const writePending = () => isPending && write();

  addEventListener('popstate', () => {
    // What had not been written yet belongs to the address that was left.
    settle();
    isFollowing();
    const { address, problems } = readAddress(start);
    written = address;
    stepped = performance.now();
    follow(address, problems);
  });

  addEventListener('pagehide', writePending);
  // A browser may end a page that is not visible without telling it.
  document.addEventListener('visibilitychange', writePending);
  isFollowing();

  return {
    /** The state has changed. */
    changed() {
      if (isPending) return;
      isPending = true;
      const wait = taken - performance.now() - AT_ONCE * WRITE_MS;
      // After all changes of this event.
      if (wait <= 0) queueMicrotask(writePending);
      else timer = setTimeout(write, wait);
    },
    /** The address of the state as it is now. */
    get link() {
      write();
      return location.href;
    },
  };
}

/** Two states with the same are one step for Back. @param {Address} address */
function stepOf(address) {
  return JSON.stringify([...STEPS.map((name) => address[name]), address.writing.begun]);
}

/** What the address asks for, with what was too long for it. @param {Address} start */
export function readAddress(start) {
  const { address, problems } = decode(location.hash, start);
  const kept = /** @type {Kept} */ (history.state?.kept ?? {});
  if (typeof kept.text === 'string') address.input = { kind: 'text', text: kept.text };
  if (typeof kept.mod === 'string') address.mod = kept.mod;
  if (typeof kept.writing === 'string' && address.input.kind === 'write') address.writing = { packed: kept.writing, begun: 0 };
  return { address, problems };
}

/** @param {Address} address @param {string} fragment @returns {Kept} */
function tooLong({ input, mod, writing }, fragment) {
  return {
    ...(input.kind === 'text' && !/[#&]text=/u.test(fragment) && { text: input.text }),
    ...(mod && !/[#&]mod=/u.test(fragment) && { mod }),
    ...(input.kind === 'write' && !fragment.includes(writing.packed) && { writing: writing.packed }),
  };
}
