import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { latest } from '../src/latest.js';
import { filesOf, inflate, unpack } from '../src/runtime/archive.js';
import { createFirsts } from '../src/runtime/firsts.js';
import { createOutput } from '../src/runtime/output.js';
import { tar } from './tar.js';

/** @param {Uint8Array<ArrayBuffer>} bytes */
const gzip = (bytes) => new Response(new Blob([bytes]).stream().pipeThrough(new CompressionStream('gzip'))).arrayBuffer();

describe('archives', () => {
  it('are inflated and unpacked with their folders', async () => {
    const long = 'x'.repeat(600);
    const packed = await gzip(
      tar([
        { path: 'lib/a.py', content: 'a = 1' },
        { path: 'b.py', folder: 'lib/deep', content: long },
        { path: 'lib/empty.py', content: '' },
      ]),
    );
    const archive = await inflate(packed);
    const FS = { mkdirTree: vi.fn(), writeFile: vi.fn() };
    unpack(FS, filesOf(archive));
    const written = FS.writeFile.mock.calls.map(([path, bytes]) => [path, new TextDecoder().decode(bytes)]);
    expect(written).toEqual([['/lib/a.py', 'a = 1'], ['/lib/deep/b.py', long], ['/lib/empty.py', '']]);
    expect(FS.mkdirTree.mock.calls.flat()).toEqual(['/lib', '/lib/deep']);
  });
});

it('inflate rejects what is no archive', async () => {
  await expect(inflate(Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 0, 0, 0, 0).buffer)).rejects.toThrow();
});

describe('createOutput', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it('sends lines together, after a moment', () => {
    const send = vi.fn();
    const { print, end } = createOutput(send);
    end(); // the clock begins
    print('out', 'one');
    print('err', 'two');
    expect(send).not.toHaveBeenCalled();
    vi.advanceTimersByTime(50);
    expect(send).toHaveBeenCalledExactlyOnceWith([{ stream: 'out', text: 'one' }, { stream: 'err', text: 'two' }]);
  });

  it('shows the first lines and the last ones of a run that prints very many', () => {
    /** @type {import('../src/runtime/output.js').Line[]} */
    const lines = [];
    const { print, end } = createOutput((sent) => lines.push(...sent));
    for (let n = 0; n < 5000; n++) print('out', String(n));
    end();
    expect(lines).toHaveLength(2101);
    expect(lines[1999].text).toBe('1999');
    expect(lines[2000]).toEqual({ stream: 'err', text: '… 2,900 lines are not shown …' });
    expect(lines[2001].text).toBe('4900');
    print('out', 'the next run');
    end();
    expect(lines.at(-1)?.text).toBe('the next run');
  });

  it('cuts a line that nobody will read to its end', () => {
    const send = vi.fn();
    const { print, end } = createOutput(send);
    print('out', 'x'.repeat(10_000));
    end();
    expect(send.mock.calls.flat(2)[0].text).toHaveLength(4002);
  });
});

describe('createFirsts', () => {
  it('lets others wait for what comes once, also when it has come already', async () => {
    const firsts = createFirsts();
    const waited = firsts.wait('window', 60_000);
    firsts.came('window');
    await waited;
    await firsts.wait('window', 60_000);
  });

  it('waits no longer than it is told', async () => {
    await createFirsts().wait('window', 1);
  });
});

describe('latest', () => {
  it('runs one at a time, and of those that come meanwhile only the last', async () => {
    /** @type {(() => void)[]} */
    const ends = [];
    /** @type {number[]} */
    const begun = [];
    const ask = latest((/** @type {number} */ n) => new Promise((resolve) => [begun.push(n), ends.push(() => resolve())]), () => {});
    for (const n of [1, 2, 3]) ask(n);
    expect(begun).toEqual([1]);
    ends[0]();
    await vi.waitFor(() => expect(begun).toEqual([1, 3]));
  });

  it('tells of an error, and goes on', async () => {
    const onError = vi.fn();
    /** @type {number[]} */
    const done = [];
    const ask = latest(async (/** @type {number} */ n) => {
      if (n === 1) throw new Error('one');
      done.push(n);
    }, onError);
    ask(1);
    ask(2);
    await vi.waitFor(() => expect(done).toEqual([2]));
    expect(onError).toHaveBeenCalledExactlyOnceWith(new Error('one'));
  });
});
