import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Queue } from '../src/gpu/queue.js';

function recording() {
  const device = {
    queue: { submit: vi.fn(), writeBuffer: vi.fn(), onSubmittedWorkDone: vi.fn(async () => {}) },
    pushErrorScope: vi.fn(),
    popErrorScope: vi.fn(async () => null),
  };
  const queue = new Queue(/** @type {any} */ (device), false, () => false);
  const encoder = /** @type {any} */ ({ finish: () => 'commands' });
  return { device, queue, encoder };
}

describe('Queue', () => {
  it('waits only for work that is not known to be done', async () => {
    const { device, queue, encoder } = recording();
    await queue.idle();
    expect(device.queue.onSubmittedWorkDone).not.toHaveBeenCalled();
    queue.submit(encoder);
    await queue.idle();
    await queue.idle();
    expect(device.queue.onSubmittedWorkDone).toHaveBeenCalledTimes(1);
  });

  it('knows from a read-back that earlier work is done, but not work that came after it', async () => {
    const { device, queue, encoder } = recording();
    queue.submit(encoder);
    const mapped = queue.after(Promise.resolve('bytes'));
    queue.submit(encoder);
    expect(await mapped).toBe('bytes');
    await queue.idle();
    expect(device.queue.onSubmittedWorkDone).toHaveBeenCalledTimes(1);
  });

  it('passes on what goes wrong with what it waits for', async () => {
    const { queue } = recording();
    await expect(queue.polled(Promise.reject(new Error('lost')))).rejects.toThrow('lost');
  });

  it('looks for finished work as long as any wait goes on, one look at a time', async () => {
    vi.useFakeTimers();
    const { device, queue } = recording();
    let looks = 0;
    device.popErrorScope.mockImplementation(async () => {
      expect(++looks).toBe(1);
      await new Promise((done) => setTimeout(done));
      looks--;
      return null;
    });
    /** @type {(() => void)[]} */
    const ends = [];
    const waits = [0, 1].map(() => queue.polled(/** @type {Promise<void>} */ (new Promise((done) => ends.push(done)))));
    const looked = async () => {
      device.popErrorScope.mockClear();
      await vi.advanceTimersByTimeAsync(5);
      return device.popErrorScope.mock.calls.length > 0;
    };
    expect(await looked()).toBe(true);
    ends[0]();
    expect(await looked()).toBe(true);
    ends[1]();
    await Promise.all(waits);
    await looked(); // the last one was still on its way
    expect(await looked()).toBe(false);
    vi.useRealTimers();
  });

  it('ends a wait at once, though a look is still on its way', async () => {
    const { device, queue } = recording();
    device.popErrorScope.mockImplementation(() => new Promise(() => {}));
    expect(await queue.polled(Promise.resolve('done'))).toBe('done');
  });

  it('submits nothing of its own for a wait', async () => {
    const { device, queue } = recording();
    await queue.polled(new Promise((done) => setTimeout(done, 30)));
    expect(device.queue.submit).not.toHaveBeenCalled();
  });
});

describe('Queue in Firefox', () => {
  beforeEach(() => void vi.stubGlobal('navigator', { userAgent: 'Mozilla/5.0 (rv:153.0) Gecko/20100101 Firefox/153.0' }));
  afterEach(() => void vi.unstubAllGlobals());

  it('wakes the browser until the last of several waits has ended, and then no more', async () => {
    const { device, queue } = recording();
    /** @type {(() => void)[]} */
    const ends = [];
    const waits = [0, 1].map(() => queue.polled(/** @type {Promise<void>} */ (new Promise((done) => ends.push(done)))));
    for (const index of [0, 1]) {
      device.queue.submit.mockClear();
      await vi.waitFor(() => expect(device.queue.submit.mock.calls.length).toBeGreaterThan(5));
      expect(device.queue.submit).toHaveBeenCalledWith([]);
      ends[index]();
      await waits[index];
    }
    await new Promise((done) => setTimeout(done, 30));
    device.queue.submit.mockClear();
    await new Promise((done) => setTimeout(done, 30));
    expect(device.queue.submit).not.toHaveBeenCalled();
  });

  it('goes on where the wait is long', async () => {
    const { device, queue } = recording();
    let calls = 0;
    device.queue.submit.mockImplementation(() => void (calls += 1));
    await queue.polled(new Promise((done) => setTimeout(done, 200)));
    expect(calls).toBeGreaterThan(10);
  });

  it('ends with the device', async () => {
    let isLost = false;
    const { device } = recording();
    const queue = new Queue(/** @type {any} */ (device), true, () => isLost);
    void queue.polled(new Promise(() => {}));
    isLost = true;
    await new Promise((done) => setTimeout(done, 30));
    device.queue.submit.mockClear();
    await new Promise((done) => setTimeout(done, 60));
    expect(device.queue.submit).not.toHaveBeenCalled();
  });

  it('passes on what goes wrong with what it waits for', async () => {
    const { queue } = recording();
    await expect(queue.polled(Promise.reject(new Error('lost')))).rejects.toThrow('lost');
  });
});
