import { describe, expect, it } from 'vitest';
import { compareTable, headsTable, linksTable, timingsTable } from '../src/panels/tables.js';
import { markdownRow, toCsv, toMarkdown } from '../src/table-text.js';

/** @param {any[][]} rows @param {any[]} [columns] */
const table = (rows, columns = [{ label: 'Token' }, { label: 'Weight', format: (/** @type {number} */ x) => x.toFixed(2) }]) => ({ name: 't', columns, rows });
/** A reader of RFC 4180. @param {string} text */
function parse(text) {
  const rows = [['']];
  for (let i = 0, quoted = false; i < text.length; i++) {
    const row = /** @type {string[]} */ (rows.at(-1));
    if (quoted && text[i] === '"' && text[i + 1] === '"') row[row.length - 1] += text[i++];
    else if (text[i] === '"') quoted = !quoted;
    else if (!quoted && text[i] === ',') row.push('');
    else if (!quoted && text.startsWith('\r\n', i)) rows.push(['']), i++;
    else row[row.length - 1] += text[i];
  }
  return rows.slice(0, -1);
}

describe('CSV', () => {
  it('reads back as it was, whatever the tokens are', () => {
    const tokens = ['a,b', 'say "it"', 'two\nlines', '\r\n', '', ' space ', 'it’s', '[CLS]', '日本'];
    expect(parse(toCsv(table(tokens.map((token) => [token, 1])))).slice(1).map(([token]) => token)).toEqual(tokens);
  });
  it('has numbers with all their digits, and units in its head', () => {
    const weight = Math.fround(0.1);
    const text = toCsv(table([[1 / 3, weight], [-2.5e-9, NaN], [1e300, -Infinity]], [{ label: 'Time', unit: 'µs' }, { label: 'Weight' }]));
    const [head, ...rows] = parse(text);
    expect(head).toEqual(['Time (µs)', 'Weight']);
    expect(rows.map((row) => row.map(Number)).slice(0, 1)).toEqual([[1 / 3, 0.1]]);
    expect(Math.fround(Number(rows[0][1]))).toBe(weight);
    expect(rows.slice(1)).toEqual([['-2.5e-9', 'NaN'], ['1e+300', '-inf']]);
  });
  it('gives a spreadsheet no formulas: texts get an apostrophe, numbers do not', () => {
    const risky = ['=1+1', '+1', '-1', '@SUM(A1)', '\t=1', ' =1', '＝1'];
    const rows = parse(toCsv(table(risky.map((token) => [token, -1])))).slice(1);
    expect(rows.map(([token]) => token)).toEqual(risky.map((token) => `'${token}`));
    expect(rows.every(([, weight]) => weight === '-1')).toBe(true);
  });
  it('ends every line with CR and LF, and leaves empty what is not known', () => {
    expect(toCsv(table([['a', null], [undefined, true]]))).toBe('Token,Weight\r\na,\r\n,yes\r\n');
  });
});

describe('Markdown', () => {
  it('is a table with numbers to the right, as the page writes them', () => {
    expect(toMarkdown(table([['cat', 0.125], ['it', null]]))).toBe('| Token | Weight |\n| --- | --: |\n| cat | 0.13 |\n| it |  |\n');
  });
  it('escapes what would be markup, or end a cell', () => {
    expect(toMarkdown(table([['a|b', 1], ['*x*_y_`z`<b>\\', 1], ['two\nlines', 1]])).split('\n').slice(2, 5)).toEqual([
      '| a\\|b | 1.00 |',
      '| \\*x\\*\\_y\\_\\`z\\`\\<b\\>\\\\ | 1.00 |',
      '| two lines | 1.00 |',
    ]);
    expect(markdownRow(['a|b', '`c`'])).toBe('| a\\|b | `c` |');
  });
});

describe('the page’s tables', () => {
  const tokens = ['[CLS]', 'cat', '=it'];
  it('name positions from 0 beside the tokens', () => {
    const made = linksTable(tokens, { query: 2, weights: new Float32Array(3), links: [{ key: 0, weight: 0.5 }] }, false);
    expect(parse(toCsv(made))).toEqual([['Query position', 'Query', 'Key position', 'Key', 'Weight'], ['2', "'=it", '0', '[CLS]', '0.5']]);
  });
  it('have every head with every score', () => {
    const labels = /** @type {any} */ ([{ name: 'previous', title: 'previous token' }, { name: 'self', title: 'self' }]);
    const findings = /** @type {any} */ ({
      shown: [[], [{ name: 'self', score: 0.75 }]], scores: Float32Array.of(0.25, NaN, 0, 0.75), entropy: Float32Array.of(1, 2), sparsity: Float32Array.of(0, 1),
    });
    expect(parse(toCsv(headsTable(findings, labels, 1))).slice(1)).toEqual([['0', '0', '', '1', '0', '0.25', 'NaN'], ['1', '0', 'self', '2', '1', '0', '0.75']]);
  });
  it('have times in one unit, with their quartiles', () => {
    const measured = /** @type {any} */ ({ variant: 'tiled', repeats: 5, clock: 'gpu', parts: { dispatch: { median: 1500.25, low: 1400, high: 1600 } }, error: 1e-7, plain: 2e-7, ok: true });
    const [head, line] = parse(toCsv(timingsTable([measured], 3)));
    expect(line[head.indexOf('Dispatch (µs)')]).toBe('1500.25');
    expect(line[head.indexOf('Upload (µs)')]).toBe('');
    expect(line[head.indexOf('Total (µs)')]).toBe('1500.25');
    expect(line.at(-1)).toBe('yes');
  });
  it('compare A and B, also where B has no such cell', () => {
    const names = { a: 'A: layer 0, head 0', b: 'B: layer 0, head 1' };
    const figures = /** @type {any} */ ({ largest: { query: 1, key: 0, a: 0.5, b: 0.25 }, variation: 0.5, shannon: 0.25 });
    const rows = compareTable(names, tokens, figures, { query: 2, key: 1, a: 0.5 }).rows;
    expect(rows[0]).toEqual(['chosen cell', 2, '=it', 1, 'cat', 0.5, undefined, null]);
    expect(rows[1].at(-1)).toBe(0.25);
    expect(rows).toHaveLength(4);
  });
});
