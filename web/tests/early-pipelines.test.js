import { describe, expect, it, vi } from 'vitest';
import { createEarlyPipelines } from '../src/runtime/early-pipelines.js';

const INFO = JSON.stringify({ vendor: 'v', software: false, subgroup_min_size: 32, features: ['subgroups', 'subgroup_id'] });
/** @param {string} label */
const source = (label) => ({ label, wgsl: `text of ${label}`, access: 'rw' });
const LISTED = [
  { software: true, subgroup_size: 0, features: [], sources: [source('software')] },
  { software: false, subgroup_size: 64, features: [], sources: [source('larger subgroups')] },
  { software: false, subgroup_size: 8, features: ['shader-f16'], sources: [source('another feature')] },
  { software: false, subgroup_size: 8, features: ['subgroups'], sources: [source('like this')] },
  { software: false, subgroup_size: 0, features: [], sources: [source('any')] },
];

/** @param {{ kept?: string, info?: string, build?: () => Promise<string> }} [given] */
function setUp({ kept = '', info = INFO, build = async () => 'b1' } = {}) {
  const notes = { load: vi.fn(async () => kept), save: vi.fn(async () => {}) };
  const listed = vi.fn(async () => LISTED);
  const device = { info: () => info, asked: [source('asked')], compileEarly: vi.fn(async () => {}) };
  return { notes, listed, device, early: createEarlyPipelines(notes, { build, listed }) };
}

/** @param {object} [changes] */
const note = (changes) => JSON.stringify({ build: 'b1', adapter: INFO, sources: [source('kept')], ...changes });

describe('pipelines compiled early', () => {
  it('are those of the build for an adapter like this, on a first visit', async () => {
    const { early, device } = setUp();
    await early.compile(device);
    expect(device.compileEarly).toHaveBeenCalledWith([source('like this')]);
  });

  it('are those of the last visit', async () => {
    const { early, device, listed } = setUp({ kept: note() });
    await early.compile(device);
    expect(device.compileEarly).toHaveBeenCalledWith([source('kept')]);
    expect(listed).not.toHaveBeenCalled();
  });

  it.each([
    ['another build', note({ build: 'b0' })],
    ['another adapter', note({ adapter: '{}' })],
    ['another format', '[1, 2'],
  ])('are not those of %s', async (_, kept) => {
    const { early, device } = setUp({ kept });
    await early.compile(device);
    expect(device.compileEarly).toHaveBeenCalledWith([source('like this')]);
  });

  it('are none where something fails', async () => {
    const { early, device } = setUp({ build: () => Promise.reject(new Error('no manifest')) });
    await early.compile(device);
    expect(device.compileEarly).not.toHaveBeenCalled();
    await early.drawn()();
  });

  it('are kept once they have changed', async () => {
    const { early, device, notes } = setUp({ kept: note() });
    await early.compile(device);
    const keep = early.drawn();
    device.asked.push(source('asked after the first map'));
    await keep();
    expect(notes.save).toHaveBeenCalledExactlyOnceWith('pipelines', note({ sources: [source('asked')] }));
    const again = setUp({ kept: note({ sources: [source('asked')] }) });
    await again.early.compile(again.device);
    await again.early.drawn()();
    expect(again.notes.save).not.toHaveBeenCalled();
  });

  it('are not kept where there is no device', async () => {
    const { early, notes } = setUp();
    await early.drawn()();
    expect(notes.save).not.toHaveBeenCalled();
  });
});
