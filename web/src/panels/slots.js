/** Which position lies in which slot of a KV cache, and what is shown of it: plain arithmetic. */

/**
 * @typedef {import('../types').DecodeStep} DecodeStep
 * @typedef {{ position: number, weight: number, split: number }} Slot
 */

export const MAX_LENGTH = 4096; // positions that a slider can still step through
const MAX_SLOTS = 256; // drawn one by one
const WIDE_SLOTS = 64; // that have room for their weight in figures

/** Capacities to choose from: all positions, and smaller caches that become rings. @param {number} length @returns {[value: string, label: string][]} */
export function capacityChoices(length) {
  const sizes = new Set([length, Math.ceil(length / 2), Math.min(8, length)].filter((size) => size > 0));
  return [...sizes].map((size) => [String(size), size === length ? `${size} (all)` : `${size} (ring)`]);
}

/** Whether the slots are drawn small. @param {{ capacity: number }} step */
export function isCrowded({ capacity }) {
  return capacity > WIDE_SLOTS;
}

/**
 * The slots to draw, in their order in the cache; of a large cache the newest positions, in their order.
 * @param {DecodeStep} step
 * @returns {(Slot | null)[]} null for an empty slot
 */
export function slotsOf(step) {
  const { capacity, first, length, position, weights, splits } = step;
  const shown = Math.min(capacity, MAX_SLOTS);
  const begin = first + Math.max(0, length - shown);
  return Array.from({ length: shown }, (_, slot) => {
    const at = capacity > MAX_SLOTS ? begin + slot : positionIn(slot, step);
    if (at === null || at > position || weights[at - first] === undefined) return null;
    const split = splits.findIndex(({ start, stop }) => at >= start && at < stop);
    return { position: at, weight: weights[at - first], split };
  });
}

/**
 * The position that lies in a slot of the ring, where the newest position takes the slot of the oldest.
 * @param {number} slot @param {{ position: number, capacity: number, first: number }} step
 */
export function positionIn(slot, { position, capacity, first }) {
  const at = position - ((((position - slot) % capacity) + capacity) % capacity);
  return at >= first ? at : null;
}
