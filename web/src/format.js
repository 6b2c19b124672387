/** Figures as people read them. */

/** @param {number} bytes */
export function formatBytes(bytes) {
  if (bytes < 1e3) return `${bytes} B`;
  if (bytes < 1e6) return `${(bytes / 1e3).toFixed(0)} kB`;
  return `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;
}

/** @param {number} us microseconds */
export function formatTime(us) {
  if (us < 1) return '< 1 µs';
  // What would be rounded to a thousand is one of the next unit.
  if (us < 999.5) return `${us.toFixed(us < 9.95 ? 1 : 0)} µs`;
  if (us < 999_500) return `${(us / 1e3).toFixed(us < 9995 ? 2 : us < 99_950 ? 1 : 0)} ms`;
  return `${(us / 1e6).toFixed(2)} s`;
}

/**
 * How a column of times is written: all in the unit of its largest.
 * @param {number} largest microseconds
 */
export function timeColumn(largest) {
  const [unit, scale] = /** @type {[string, number]} */ (largest < 999.5 ? ['µs', 1] : largest < 999_500 ? ['ms', 1e3] : ['s', 1e6]);
  const figure = (/** @type {number} */ us) => {
    const value = us / scale;
    if (unit === 'µs') return value.toFixed(value < 9.95 ? 1 : 0);
    if (value < 0.005 && value > 0) return '< 0.01';
    return value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
  };
  return {
    /** @param {number} us */
    time: (us) => `${figure(us)} ${unit}`,
    /** @param {number} low @param {number} high */
    range: (low, high) => `${figure(low)}–${figure(high)} ${unit}`,
  };
}

/** A probability, or a share that may be negative: four digits that count. @param {number} weight */
export function formatWeight(weight) {
  if (weight === 0) return '0';
  return withMinus(Math.abs(weight) < 1e-4 ? weight.toExponential(1) : weight.toFixed(4));
}

/** A figure with the minus sign in the place of the hyphen that stands before a number, not in an exponent. @param {string} figure */
export function withMinus(figure) {
  return figure.replace(/^-/u, '−');
}

/** A number with its sign. @param {number} value */
export function formatSigned(value) {
  return `${value > 0 ? '+' : ''}${formatWeight(value)}`.replaceAll('-', '−');
}

/** A tick of a legend. @param {number} value @param {boolean} isSigned */
export function formatTick(value, isSigned) {
  const text = String(Number(value.toPrecision(2))).replaceAll('-', '−');
  return isSigned && value > 0 ? `+${text}` : text;
}

/** @param {number} error */
export function formatError(error) {
  return error === 0 ? '0' : error.toExponential(1);
}

/** @param {number} n */
export function formatCount(n) {
  return n.toLocaleString('en');
}

/** @param {string} token */
export function formatToken(token) {
  return token === '' ? '∅' : token.replace(/\s/gu, '␣');
}

const NAME_OF_ERROR = /^([\w.]*\.)?(\w*Error|Exception): /u;

/**
 * What happened, from a traceback: the first line of its last error, as WebGPU's words have several, else the last line.
 * @param {unknown} error
 */
export function shortError(error) {
  const message = error instanceof Error ? error.message : String(error);
  const lines = message.trimEnd().split('\n');
  const line = lines.findLast((each) => NAME_OF_ERROR.test(each)) ?? lines.at(-1) ?? message;
  return line.replace(NAME_OF_ERROR, '').trim();
}

/** Whether the GPU was lost while something was asked of it. @param {unknown} error */
export function isLoss(error) {
  return /\bDeviceLostError: /u.test(error instanceof Error ? error.message : String(error));
}

/** Why a file could not be had, as one says it. @param {unknown} error @param {string} file as a sentence begins with it, such as "The model file" */
export function describeFailure(error, file) {
  return describeFileError(error, file) || `${file} could not be loaded: ${shortError(error)}`;
}

/** The same for the errors of assets.js, whose details follow in brackets; '' for all others. @param {unknown} error @param {string} file */
export function describeFileError(error, file) {
  const message = shortError(error);
  const status = /the server answered (\d+)/iu.exec(message)?.[1];
  if (status === '404' || status === '410') return `${file} is missing (${status}).`;
  if (status) return `${file} could not be sent by the server (${status}).`;
  if (/no connection to/iu.test(message)) return `${file} could not be loaded: there is no connection to the server.`;
  const broken = /the download (?:ended|broke off) after \d+ of \d+ bytes/iu.exec(message)?.[0];
  if (broken) return `${file} did not arrive whole (${broken}).`;
  if (/SHA-256|more than the expected/iu.test(message)) return `${file} is not the one that was expected (${message}).`;
  return '';
}
