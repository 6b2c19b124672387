/**
 * What the page asks of the viewer by itself at its start, in an order in which all of it can be answered.
 *
 * scripts/pack.js asks the same, so that all modules for it come in the first archive. Only what is listed here may
 * be asked before the second one is there.
 */
export const AT_START = [
  'connect',
  'open_sample',
  'legend',
  'overview',
  'window',
  'row',
  'decode_open',
  'decode_step',
];
