// From values to pixels, with ticks that do not run together: `room` is what one takes about, `span`
// what its label takes at least.
function scale(low, high, from, to, { log, whole }, room, span) {
  if (low === high) {
    const pad = Math.abs(low) * 0.05 || 1;
    [low, high] = [low - pad, high + pad];
  }
  const warp = log ? Math.log : (v) => v;
  const [a, b] = [warp(low), warp(high)];
  const at = (v) => from + ((warp(v) - a) / (b - a)) * (to - from);
  const most = Math.max(2, Math.floor(Math.abs(to - from) / room));
  const ticks = log ? logTicks(low, high, most) : linearTicks(low, high, most, whole);
  let last = -Infinity;
  const apart = ticks.filter((tick) => {
    const fits = Math.abs(at(tick.value) - last) >= span(tick.label);
    if (fits) last = at(tick.value);
    return fits;
  });
  return { at, low, high, log, ticks: apart };
}

function linearTicks(low, high, most, whole) {
  const rough = whole ? Math.max((high - low) / most, 1) : (high - low) / most;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = (whole ? [1, 2, 5, 10] : [1, 2, 2.5, 5, 10]).map((k) => k * unit).find((s) => s >= rough) || 10 * unit;
  const places = Math.max(0, -Math.floor(Math.log10(step) + 1e-9) + (String(step / unit).includes('.') ? 1 : 0));
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) {
    const value = i * step;
    const large = Math.abs(value) >= 1e4 || (value !== 0 && step < 1e-4);
    ticks.push({ value, label: large ? brief(value) : value.toFixed(places) });
  }
  return ticks;
}

function logTicks(low, high, most) {
  if (high / low < 3) return linearTicks(low, high, most).filter((tick) => tick.value > 0);
  const inside = [[1, 2, 5], [1, 3], [1]].map((fronts) => decades(fronts, low, high))
    .find((values, i) => values.length <= most || i === 2);
  const every = Math.ceil(inside.length / most);
  return inside.filter((_, i) => i % every === 0).map((value) => ({ value, label: brief(value) }));
}

function decades(fronts, low, high) {
  const values = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e += 1) {
    for (const front of fronts) values.push(Number(`${front}e${e}`));
  }
  return values.filter((v) => v >= low * 0.999 && v <= high * 1.001);
}

// Least and greatest of finite numbers, with a margin as of this share of the range.
function extent(values, log, margin = 0.05) {
  let [low, high] = [Infinity, -Infinity];
  for (const v of values) {
    if (v === null || !Number.isFinite(v) || (log && v <= 0)) continue;
    if (v < low) low = v;
    if (v > high) high = v;
  }
  if (low > high) return log ? [1, 10] : [0, 1];
  if (log) {
    const factor = Math.max((high / low) ** margin, 1.0005);
    return [low / factor, high * factor];
  }
  const pad = (high - low) * margin;
  return [low - pad, high + pad];
}
