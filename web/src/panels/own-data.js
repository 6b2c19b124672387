/** Own data: a visitor's file with queries and keys, or with attentions, is opened, described and saved. */

import { formatBytes, formatCount, shortError } from '../format.js';
import { download } from '../heatmap/export.js';
import { buildOwnData } from './own-data-view.js';

/**
 * @typedef {import('../types').Holds} Holds
 * @typedef {import('../types').FileChoices} FileChoices
 * @typedef {import('../types').OpenedFile} OpenedFile
 * @typedef {object} Actions
 * @property {(file: Blob, name: string, choices: FileChoices) => Promise<OpenedFile>} open
 * @property {(holds: Holds) => Promise<import('../types').MadeFile>} makeExample
 * @property {(holds: Holds) => Promise<import('../types').MadeFile>} save what is shown, as a file
 *
 * @typedef {object} Panel
 * @property {Actions} actions
 * @property {ReturnType<typeof buildOwnData>} view
 * @property {{ blob: Blob, name: string, choices: FileChoices } | null} opened the file that was opened last
 * @property {number} asked counts the files, so that a later one wins over one that is still being read
 */

/** As in py_attn/viewer/sources/formats.py: a larger file is refused before it is read. */
const MAX_FILE_BYTES = 2 ** 30;
const WAIT_MS = 300;
const EXAMPLE = /^example-(queries|attentions)\.npz$/u;

/** @param {HTMLElement} element @param {Actions} actions */
export function mountOwnData(element, actions) {
  const view = buildOwnData({
    onFiles: (files) => open(panel, files),
    onExample: (holds) => void example(panel, holds),
    onChoices: (choices) => void choose(panel, choices),
    onSave: (holds) => void save(panel, holds),
  });
  element.append(...view.parts);
  /** @type {Panel} */
  const panel = { actions, view, opened: null, asked: 0 };

  return {
    /** @param {File[]} files */
    open: (files) => open(panel, files),
    /** Shows the last file again, or the one that an address names, where the page still has it. @param {string} [name] */
    reopen: (name) => reopen(panel, name),
  };
}

/** @param {Panel} panel @param {File[]} files */
function open(panel, files) {
  const [file] = files;
  if (!file) return;
  const more = files.length > 1 ? `Of ${formatCount(files.length)} files the first was opened.` : '';
  void show(panel, { blob: file, name: file.name, choices: {} }, more);
}

/** @param {Panel} panel @param {string} [name] */
async function reopen(panel, name) {
  const { opened } = panel;
  const holds = name && /** @type {Holds | undefined} */ (EXAMPLE.exec(name)?.[1]);
  if (opened && (!name || name === opened.name)) return show(panel, opened);
  if (holds) return example(panel, holds);
  if (name) panel.view.say('note', `“${name}” was shown here. A page cannot keep a file of your computer: open it again to see it.`);
}

/** @param {Panel} panel @param {Holds} holds */
async function example(panel, holds) {
  try {
    const { name, data } = await panel.actions.makeExample(holds);
    await show(panel, { blob: new Blob([data]), name, choices: {} });
  } catch (error) {
    panel.view.say('bad', shortError(error));
  }
}

/** Reads the same file in another way. @param {Panel} panel @param {FileChoices} choices */
async function choose(panel, choices) {
  const { opened } = panel;
  if (opened) await show(panel, { ...opened, choices: { ...opened.choices, ...choices } });
}

/** @param {Panel} panel @param {NonNullable<Panel['opened']>} file @param {string} [note] */
async function show(panel, file, note = '') {
  const { blob, name, choices } = file;
  const { view, actions } = panel;
  const number = ++panel.asked;
  const isOver = () => number !== panel.asked;
  // A file that is there at once needs no line that comes and goes.
  const waiting = setTimeout(() => isOver() || view.say('wait', `Reading ${name} (${formatBytes(blob.size)}) …`), WAIT_MS);
  try {
    if (blob.size > MAX_FILE_BYTES) {
      throw new Error(`${name} has ${formatBytes(blob.size)}; a file may have up to ${formatBytes(MAX_FILE_BYTES)}, because Python in a browser has 4 GB of memory.`);
    }
    const source = await actions.open(blob, name, choices);
    if (isOver()) return;
    panel.opened = file;
    view.describe(name, blob.size, source);
    view.say('note', [note, source.note].filter(Boolean).join(' '));
  } catch (error) {
    if (!isOver()) view.say('bad', `${name} was not opened. ${inWords(error)}`);
  } finally {
    clearTimeout(waiting);
  }
}

/** @param {Panel} panel @param {Holds} holds */
async function save({ view, actions }, holds) {
  try {
    const { name, data } = await actions.save(holds);
    download({ name, type: 'application/zip', data: new Blob([data], { type: 'application/zip' }) });
    view.say('note', `Saved as ${name} (${formatBytes(data.length)}). Dropped here, it shows the same maps again.`);
  } catch (error) {
    view.say('bad', `Nothing was saved: ${shortError(error)}`);
  }
}

/** Why a file could not be opened. @param {unknown} error */
function inWords(error) {
  // A folder, or a file that was changed or deleted after it was chosen.
  if (error instanceof Error && ['NotReadableError', 'NotFoundError'].includes(error.name)) {
    return 'The browser cannot read it: it is a folder, or it was moved or changed. Choose it again.';
  }
  const words = shortError(error).replace(/^file: /u, '');
  return words.charAt(0).toUpperCase() + words.slice(1);
}
