/** The page: connects the panels to one runtime, and reacts when Python stops or the GPU is lost. */

import { startAddress } from './address.js';
import { createApi } from './api.js';
import { isPathKept } from './assets.js';
import { EXAMPLES, fileOf, mountExamples } from './first/examples.js';
import { standIn } from './first/stand-in.js';
import { describeFileError, shortError } from './format.js';
import { keepAddress, readAddress } from './history.js';
import { keepForks } from './kept-forks.js';
import { layOut } from './layout.js';
import { mount } from './mount.js';
import { mountNavigation } from './navigation.js';
import { mountConsole } from './panels/console.js';
import { mountDecode } from './panels/decode.js';
import { mountDrop } from './panels/drop.js';
import { mountEdit } from './panels/edit.js';
import { mountForks } from './panels/forks.js';
import { mountInput } from './panels/input.js';
import { shareButton } from './panels/share.js';
import { mountAdapter, mountBanner, mountBoot, webgpuHelp } from './panels/status.js';
import { keepPaperLight } from './paper.js';
import { isSame } from './reading.js';
import { keepText, keptText } from './storage.js';
import { createModel, focusOf, openSource, within } from './store.js';
import { isDark, themedColormap, toggleTheme, watchTheme } from './theme.js';

/**
 * @typedef {import('./runtime/client.js').Runtime} Runtime
 * @typedef {import('./runtime/client.js').Info} Info
 * @typedef {ReturnType<typeof layOut>} Layout
 */

const [SAMPLE] = EXAMPLES;
const REPEATED_LOSS_MS = 20_000;
const HAD_MODEL = 'py-attn.model';
/** Where the page begins: the head of the sample that finds whom “it” means. */
const START = startAddress({ layer: SAMPLE.layer, head: SAMPLE.head, query: SAMPLE.query, key: SAMPLE.key });
/** What of the state the address keeps. */
const KEPT = /** @type {(keyof import('./store.js').State)[]} */ ([
  'input', 'layer', 'head', 'heads', 'query', 'key', 'pins', 'view', 'style', 'over', 'reading', 'openAs', 'direction', 'compare', 'edit',
  'editText', 'forks', 'writing',
]);

/**
 * @param {HTMLElement} element
 * @param {Runtime} runtime
 */
export function mountApp(element, runtime) {
  const app = new App(element, layOut(element), runtime);
  const on = (/** @type {string} */ type, /** @type {(detail: any) => void} */ listener) =>
    runtime.addEventListener(type, (event) => listener(/** @type {CustomEvent} */ (event).detail));
  on('progress', (progress) => app.boot.show(progress));
  on('opened', (source) => app.opened(source));
  on('output', (lines) => app.python.print(lines));
  on('failed', (error) => app.failed(error));
  on('ready', (info) => void app.started(info).catch((error) => app.failed(error)));
  on('stopped', () => app.stopped());
  on('lost', (reason) => void app.recover(reason));
  document.addEventListener('click', goTo);
}

class App {
  #runtime;
  #store;
  #hasModel = false;
  #lostAt = -Infinity;
  #banner;
  #adapter;
  #edit;
  #first;
  #input;
  #page;
  /** @type {Promise<ReturnType<typeof import('./panels/write.js').mountWrite>> | null} loaded when it is first shown */
  #write = null;
  /** The focus that the address asks for, until the source that it belongs to is there. @type {import('./store.js').Focus | null} */
  #wanted = null;
  #forks;
  #given;
  /** A score_mod that came with the address, until one is applied. */
  #linkedMod;
  /** @type {string[]} */
  #problems;
  #address;

  /** @param {HTMLElement} element @param {Layout} page @param {Runtime} runtime */
  constructor(element, page, runtime) {
    this.#runtime = runtime;
    this.#page = page;
    this.#first = standIn((...given) => runtime.call(...given));
    const { call } = this.#first;
    const { address, problems } = readAddress(START);
    const { mod, wgsl, ...look } = address;
    this.#store = createModel(call, { ...look, style: themed(address.style) });
    if (address.input.kind !== 'sample') this.#wanted = focusOf(address);
    this.#given = address;
    this.#problems = problems;
    this.#linkedMod = mod;
    keepPaperLight(element, this.#store);
    const api = createApi(call);
    this.boot = mountBoot(page.boot);
    this.#banner = mountBanner(page.banner);
    this.#adapter = mountAdapter(page.adapter);
    const stop = () => void runtime.restart().catch(() => {});
    const { parts } = mount(page.view, this.#store, { kernel: page.kernel, own: { stop, mountForks } });
    for (const name of /** @type {const} */ (['overview', 'focus', 'links', 'compare'])) parts[name].id = name;
    this.#edit = mountEdit(page.edit, api, this.#store, stop);
    mountDecode(page.decode, api, this.#store);
    this.python = mountConsole(page.console, {
      show: (source) => runtime.show(source),
      stop,
      complete: (text, position) => api.complete(text, position),
    });
    runtime.focus = () => {
      const { layer, head, query, key } = this.#store.state;
      return { layer, head, row: query, column: key };
    };
    this.#input = mountInput(page.input, this.#store, {
      openSample: async () => void (await this.#openSample()),
      openText: async (text) => void (await this.#openText(text)),
      openSynthetic: async (shape) => this.#open(await api.openSynthetic(shape)),
      loadModel: (onProgress) => this.#loadModel(onProgress),
      cancelModel: () => void runtime.cancelLoad(),
      isAtHand: (text) => this.#hasModel || fileOf(text) !== undefined,
      showWrite: (shown) => void this.#showWrite(shown),
      ownData: {
        open: async (file, name, choices) => {
          const opened = await api.openFile(file, name, choices);
          this.#store.set({ input: { kind: 'file', name } });
          this.#open(opened);
          return opened;
        },
        makeExample: api.makeExample,
        save: api.saveSource,
      },
    });
    mountExamples(page.examples, this.#store, (example) => this.#openExample(example));
    mountDrop((files) => void this.#input.openFiles(files));
    element.addEventListener('click', (event) => {
      if (event.target instanceof Element && event.target.closest('a[href="#write"]')) this.#input.show('write');
    });
    this.#address = keepAddress(
      START,
      () => this.#current(),
      (asked, unclear) => this.#follow(asked, unclear),
    );
    this.#store.on(['edit'], () => (this.#linkedMod = ''));
    this.#store.on(KEPT, () => this.#address.changed());
    this.#forks = keepForks(this.#store, () => this.#address.changed(), () => this.#tellProblems(['wgsl']));
    void this.#forks.follow(wgsl);
    mountNavigation(page.nav);
    page.share.append(shareButton(() => this.#shared()));
    watchTheme(() => this.#recolor());
    page.theme.addEventListener('click', () => {
      toggleTheme();
      this.#recolor();
    });
    this.#showFirstPicture();
  }

  /** The sample's maps as they came with the page, until Python computes them. */
  #showFirstPicture() {
    const { source } = this.#first;
    this.#input.begin(source.title);
    this.#store.set({ source, ...within(focusOf(this.#store.state), source) });
  }

  /** Python is ready, for the first time or again after a stop. @param {Info} info */
  async started(info) {
    const first = !this.#first.isLive;
    await this.#begin(info);
    if (first) return this.#firstVisit();
    await this.#reopen();
    return this.#banner.show('info', 'Python is back.', 'The console starts with no variables; your text was kept.');
  }

  stopped() {
    this.#hasModel = false;
    void this.#write?.then((write) => write.lost('Python was stopped.'));
    this.python.setReady(false);
    this.#adapter.set('starting');
    this.#banner.show('info', 'Python was stopped.', 'It is starting again; your text is kept, variables are gone.');
  }

  /** @param {Error} error */
  failed(error) {
    this.#adapter.set('failed');
    this.boot.fail(describeFileError(error, 'A file of this page') || shortError(error), () => location.reload());
  }

  /** Asks for another device, and computes again what was shown. @param {string} reason */
  async recover(reason) {
    // If the same input loses the GPU twice in a row, it is not tried a third time.
    const again = performance.now() - this.#lostAt < REPEATED_LOSS_MS;
    this.#lostAt = performance.now();
    this.#hasModel = false;
    void this.#write?.then((write) => write.lost('The GPU was lost.'));
    this.python.setReady(false);
    this.#banner.show('warn', 'The GPU was lost', `(${reason}). Asking for a new one; your input is kept.`);
    try {
      await this.#begin(await this.#runtime.renew());
      if (again) {
        await this.#openSample();
        this.#banner.show('warn', 'The GPU was lost twice in a row.', 'The sample is shown instead of your input, which may be too much for it.');
        return;
      }
      await this.#reopen();
      this.#banner.show('info', 'A new GPU device is here.', 'Everything was computed again from your input.');
    } catch (error) {
      this.#banner.show('warn', 'Could not get a new GPU device.', shortError(error));
    }
  }

  /** Shows which adapter computes, and opens the sample where nothing is shown yet. @param {Info} info */
  async #begin(info) {
    this.#adapter.show(info);
    this.#store.set({ info });
    if (!info.webgpu) {
      this.#banner.show('warn', 'No WebGPU here.', `${info.reason} Everything below is computed by the numpy reference instead.`, webgpuHelp());
    }
    this.python.setReady(true, info.webgpu ? '' : info.reason);
    if (!this.#first.isLive) {
      this.boot.show({ stage: 'sample', loaded: 0, total: 0 });
      this.#input.ready(await this.#openSample());
    }
    this.boot.done();
  }

  async #firstVisit() {
    void this.python.openEditor();
    void this.#edit.openEditor();
    this.#tellProblems(this.#problems);
    if (this.#given.mod && !this.#edit.held) this.#edit.follow(this.#given.mod);
    // A sentence from the last visit is computed without a click, as the weights are in the browser's cache.
    if (this.#input.pending && (this.#input.isAtHand || keptText(HAD_MODEL))) await this.#input.start();
  }

  /** Shows again what was shown, on a new device or in a new Python. */
  async #reopen() {
    const { source, sourceNumber } = this.#store.state;
    const focus = focusOf(this.#store.state);
    // All but a new Python and a model's own queries and keys.
    const same = await createApi(this.#store.call).openAgain();
    if (same) return openSource(this.#store, same, focus);
    this.#wanted = focus;
    if (source?.kind === 'text') await this.#loadModel(() => {});
    // The language model reads its text again when the visitor asks for it.
    if (source?.kind === 'written') return void (await this.#openSample());
    if (source?.title !== SAMPLE.text) await this.#input.replay();
    // The sample, and what Python has shown, which is gone with it.
    if (this.#store.state.sourceNumber === sourceNumber) await this.#openSample();
    this.#wanted = null;
    return undefined;
  }

  /** @param {import('./types').SourceInfo} source */
  #open(source) {
    const { input, view } = this.#store.state;
    const asked = input.kind === 'text' ? input.text : input.kind === 'sample' ? SAMPLE.text : '';
    const arrived = source.kind !== 'sample' || source.title === asked;
    // What was zoomed in the first picture stays so.
    const same = this.#first.isLive ? {} : { view };
    this.#first.end();
    openSource(this.#store, source, (arrived && this.#wanted) || same);
    if (arrived) this.#wanted = null;
  }

  /** A cell of the console has opened a source. @param {import('./types').SourceInfo} source */
  opened(source) {
    const { input } = this.#store.state;
    const name = source.title.slice(0, 200);
    // After a reload the same cell leads back to where it was looked at.
    if (input.kind !== 'python' || input.name !== name) this.#wanted = null;
    this.#store.set({ input: { kind: 'python', name } });
    this.#open(source);
  }

  // The address

  /** @returns {import('./address.js').Address} */
  #current() {
    const { state } = this.#store;
    // A focus that waits for its source is what the address says already.
    return { ...state, ...this.#wanted, mod: state.editText || this.#linkedMod, wgsl: this.#forks.packed };
  }

  #shared() {
    const { input, editText, forks, writing } = this.#store.state;
    const link = this.#address.link;
    const lacks = [
      input.kind === 'text' && !/[#&]text=/u.test(link) && 'the sentence, which is too long',
      forks.length > 0 && !/[#&]wgsl=/u.test(link) && 'your kernels, which are too long',
      editText && !/[#&]mod=/u.test(link) && 'the score_mod, which is too long',
      input.kind === 'file' && 'the file, which never leaves your computer',
      input.kind === 'python' && 'what Python has shown, which the page does not keep',
      input.kind === 'write' && !link.includes(writing.packed) && 'the text that was written, which is too long',
    ].filter(Boolean);
    return { link, lacks: lacks.join(' and ') };
  }

  /** Shows what an address asks for. @param {import('./address.js').Address} address @param {string[]} problems */
  #follow(address, problems) {
    const { input, mod, style, over, reading, openAs, direction, compare } = address;
    this.#tellProblems(problems);
    const { state } = this.#store;
    this.#store.set({ over, reading, openAs, direction, compare, style: themed(style) });
    this.#linkedMod = mod;
    this.#edit.follow(mod);
    void this.#forks.follow(address.wgsl);
    const isWritten = input.kind !== 'write' || address.writing.packed === state.writing.packed;
    if (input.kind === 'write') this.#store.set({ writing: address.writing });
    if (isWritten && JSON.stringify(input) === JSON.stringify(state.input)) {
      const focus = focusOf(address);
      if (state.source) this.#store.set(within(focus, state.source));
      if (isSame(reading, state.reading)) return;
      // The same positions again, once the source has those of the other reading.
      const end = this.#store.on(['sourceNumber'], ({ source }) => {
        end();
        if (source) this.#store.set(within(focus, source));
      });
    } else {
      this.#wanted = focusOf(address);
      this.#input.follow(input);
    }
  }

  /** @param {string[]} problems fields of the address that have no meaning */
  #tellProblems(problems) {
    if (!problems.length) return;
    const names = [...new Set(problems)].slice(0, 5).join(', ');
    this.#banner.show('info', 'Parts of this address were not understood', `and are left out: ${names}.`);
  }

  /** @param {string} text */
  async #openText(text) {
    const file = fileOf(text);
    this.#open(file ? await this.#runtime.open('open_sample', file) : await createApi(this.#store.call).openText(text));
  }

  /** Shows the head and the cell at which an example's finding is seen. @param {import('./first/examples.js').Example} example */
  #openExample({ text, layer, head, query, key }) {
    const input = text === SAMPLE.text ? START.input : { kind: /** @type {const} */ ('text'), text };
    const { style, openAs, direction, compare, mod } = this.#current();
    this.#follow({ ...START, input, layer, head, query, key, style: { ...style, show: 'weights' }, openAs, direction, compare, mod }, []);
  }

  /** Resolves with its title. @returns {Promise<string>} */
  async #openSample() {
    const sample = await this.#runtime.open('open_sample', SAMPLE.file);
    this.#open(sample);
    return sample.title;
  }

  /** @param {(stage: string, loaded: number, total: number) => void} onProgress */
  async #loadModel(onProgress) {
    this.#hasModel = (await this.#runtime.loadModel(onProgress)).loaded;
    if (this.#hasModel) keepText(HAD_MODEL, 'yes');
    return this.#hasModel;
  }

  /** @param {boolean} shown */
  async #showWrite(shown) {
    this.#page.write.hidden = !shown;
    this.#page.examples.hidden = shown; // they are sentences to read; the panel has prompts
    if (shown) this.#write ??= this.#mountWrite();
    const write = await this.#write;
    if (this.#page.write.hidden) write?.leave();
    else await write?.enter();
  }

  async #mountWrite() {
    const { mountWrite } = await import('./panels/write.js');
    return mountWrite(this.#page.write, this.#store, createApi(this.#store.call), {
      loadModel: async (choice, onProgress) => (await this.#runtime.loadModel(onProgress, choice)).loaded,
      cancelModel: () => void this.#runtime.cancelLoad(),
      hasModel: () => isPathKept('models/smollm2/'),
      open: (source, focus) => {
        const wanted = this.#wanted;
        this.#wanted = null;
        openSource(this.#store, source, wanted ?? focus);
        return wanted !== null;
      },
      forget: () => (this.#wanted = null),
      unclear: () => this.#tellProblems(['write']),
    });
  }

  #recolor() {
    const { style } = this.#store.state;
    this.#store.set({ style: { ...style, colormap: themedColormap(style.colormap, isDark()) } });
  }
}

/** A style in the colours of light or dark. @param {import('./types').Style} style */
function themed(style) {
  return { ...style, colormap: themedColormap(style.colormap, isDark()) };
}

/** Follows a link within the page without touching the address, where the sentence lies. @param {MouseEvent} event */
function goTo(event) {
  const link = event.target instanceof Element ? event.target.closest('a[href^="#"]') : null;
  const target = link && document.getElementById(link.getAttribute('href')?.slice(1) ?? '');
  if (!target) return;
  event.preventDefault();
  target.tabIndex = -1;
  target.focus({ preventScroll: true });
  target.scrollIntoView();
}
