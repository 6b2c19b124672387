/** Tables as text for other programs: Markdown to be read, CSV (RFC 4180) to be computed with. */

/**
 * @typedef {string | number | boolean | null | undefined} Cell none is an empty one
 * @typedef {object} Column
 * @property {string} label
 * @property {string} [unit] of its numbers, such as "µs"
 * @property {(value: number) => string} [format] how Markdown writes its numbers, without the unit; CSV has all digits
 * @typedef {{ name: string, columns: Column[], rows: Cell[][] }} Table `name`: of a file, without its ending
 */

/** What a spreadsheet would compute instead of showing it; full-width signs count as well. */
const FORMULA = /^\s*[=+\-@＝＋－＠]/u;
/** What Markdown would take for markup. */
const MARKUP = /[\\`*_|<>~]/gu;

/** @param {Table} table */
export function toMarkdown({ columns, rows }) {
  const isNumeric = columns.map((_, i) => rows.some((row) => typeof row[i] === 'number'));
  const cell = (/** @type {Cell} */ value, /** @type {number} */ i) =>
    typeof value === 'number' ? (columns[i].format ?? digits)(value) : plain(value).replace(MARKUP, '\\$&').replace(/\s+/gu, ' ');
  const lines = [columns.map((column) => heading(column).replace(MARKUP, '\\$&')), isNumeric.map((is) => (is ? '--:' : '---')), ...rows.map((row) => row.map(cell))];
  return `${lines.map(markdownRow).join('\n')}\n`;
}

/** A line of a Markdown table; the cells are Markdown already. @param {string[]} cells */
export function markdownRow(cells) {
  return `| ${cells.map((cell) => cell.replace(/(?<!\\)\|/gu, '\\|')).join(' | ')} |`;
}

/**
 * Numbers have all their digits. A text that a spreadsheet would take for a formula has an apostrophe before it, which
 * spreadsheets know as the mark of a text.
 * @param {Table} table
 */
export function toCsv({ columns, rows }) {
  const cell = (/** @type {Cell} */ value) => (typeof value === 'number' ? digits(value) : quoted(inert(plain(value))));
  const lines = [columns.map((column) => quoted(heading(column))), ...rows.map((row) => row.map(cell))];
  return lines.map((line) => `${line.join(',')}\r\n`).join('');
}

/** @param {Column} column */
function heading({ label, unit }) {
  return unit ? `${label} (${unit})` : label;
}

/** @param {Exclude<Cell, number>} value */
function plain(value) {
  return typeof value === 'boolean' ? (value ? 'yes' : 'no') : (value ?? '');
}

/** The fewest digits that give the same number when they are read, of a float32 as a float32. @param {number} value */
function digits(value) {
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value < 0 ? '-inf' : 'inf';
  if (Math.fround(value) !== value) return String(value);
  let count = 1;
  while (count < 9 && Math.fround(Number(value.toPrecision(count))) !== value) count++;
  return String(Number(value.toPrecision(count)));
}

/** @param {string} text */
function inert(text) {
  return FORMULA.test(text) ? `'${text}` : text;
}

/** @param {string} text */
function quoted(text) {
  return /[",\r\n]|^\s|\s$/u.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
