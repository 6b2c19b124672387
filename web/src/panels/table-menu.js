/** The menu that copies or saves a table, the same for every table. */

import { ICONS } from '../dom.js';
import { shortError } from '../format.js';
import { download } from '../heatmap/export.js';
import { menu, saying } from '../menu.js';
import { toCsv, toMarkdown } from '../table-text.js';

/** @typedef {import('../table-text.js').Table} Table */

const CSV = 'Numbers with all their digits; a text that a spreadsheet would compute has an apostrophe before it';
/** By this mark a spreadsheet knows that the file is UTF-8. */
const BYTE_ORDER_MARK = '\uFEFF';

/**
 * @param {string} what the table shows, such as "Strongest links"
 * @param {() => Table | null} current the table as it is now, null where there is nothing in it
 */
export function tableMenu(what, current) {
  const act = (/** @type {(table: Table) => Promise<string>} */ work) => () => {
    const table = current();
    if (!table?.rows.length) return say('There is nothing in this table yet.');
    work(table).then(say, (error) => say(`This could not be done: ${shortError(error)}`));
  };
  const copy = (/** @type {(table: Table) => string} */ write, /** @type {string} */ done) =>
    act(async (table) => {
      await navigator.clipboard.writeText(write(table));
      return done;
    });
  const list = menu(`${what} as a table`, ICONS.table, [
    { label: 'Copy as Markdown', title: 'Figures as they stand here, for a text', act: copy(toMarkdown, 'Copied as Markdown.') },
    { label: 'Copy as CSV', title: CSV, act: copy(toCsv, 'Copied as CSV.') },
    { label: 'Save as CSV', title: CSV, act: act(save) },
  ]);
  const { element, say } = saying(list);
  element.classList.add('table-menu');
  return element;
}

/** @param {Table} table */
async function save(table) {
  const type = 'text/csv;charset=utf-8';
  download({ name: `${table.name}.csv`, type, data: new Blob([BYTE_ORDER_MARK, toCsv(table)], { type }) });
  return `Saved as ${table.name}.csv.`;
}
