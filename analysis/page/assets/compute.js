// Figures 1 and 2: loss, and the multiplier, against compute under a convention.
const computeView = { axis: null, show: 'loss', xlog: true, ylog: true, mlog: false, means: false, bands: true };

function axisOf(data) {
  const { axes } = data.compute;
  return axes.find((a) => a.key === computeView.axis) || axes[0];
}

function axisLabel(axis) {
  return axis.unit === 's' ? 'training time (s), wall-clock' : `training compute (PFLOP/s-days, ${short(axis.label)})`;
}

const short = (words) => (words.length > 28 ? `${words.slice(0, 27)}\u2026` : words);

function axisChoice(id, data, redraw) {
  const { axes } = data.compute;
  if (axes.length < 2) return null;
  return choice(id, 'Compute convention', axes.map((a) => [a.key, a.label]), axisOf(data).key, (key) => {
    computeView.axis = key;
    redraw();
  });
}

const SHOWN = {
  loss: ['Loss', 'validation loss (nats)'],
  residual: ['Residual from its own law', 'residual from its own law (%)'],
  relative: ['Against the baseline\u2019s law', 'loss against the baseline\u2019s law (%)'],
};

function lossFigure(host, data, redraw) {
  const { compute } = data;
  const axis = axisOf(data);
  const laws = new Map(compute.laws[axis.key].map((law) => [law.variant, law]));
  const base = laws.get(data.variants.indexOf(data.baseline));
  const known = base && base.A !== undefined;
  if (computeView.show === 'relative' && !known) computeView.show = 'loss';
  const loss = computeView.show === 'loss';
  const runs = pointsOf(compute, axis);
  const present = [...new Set(runs.map((r) => r.variant))].sort((a, b) => a - b);
  const several = new Set(runs.map((r) => `${r.variant} ${r.size}`)).size < runs.length;
  const flip = (key) => () => {
    computeView[key] = !computeView[key];
    redraw();
  };
  const series = [];
  for (const v of present.filter((i) => !hiddenVariants.has(i))) {
    const law = laws.get(v);
    const drawn = law && law.A !== undefined;
    const reference = computeView.show === 'relative' ? base : law;
    if (!loss && !(reference && reference.A !== undefined)) continue;
    const shift = (y, x) => (loss || y === null ? y : 100 * (y / (reference.A * x ** -reference.alpha) - 1));
    const style = look(v);
    if (drawn && !(computeView.show === 'residual' && !computeView.bands)) {
      const banded = computeView.bands ? { low: law.low.map((y, i) => shift(y, law.x[i])), high: law.high.map((y, i) => shift(y, law.x[i])) } : {};
      series.push({ name: data.variants[v], look: style.look, dash: style.dash, line: true, x: law.x, y: law.y.map((y, i) => shift(y, law.x[i])), ...banded });
    }
    const own = (computeView.means ? meansOf(runs) : runs).filter((r) => r.variant === v);
    series.push({
      name: data.variants[v], look: style.look, marker: style.shape, x: own.map((r) => r.x), y: own.map((r) => shift(r.loss, r.x)),
      text: (i) => pointWords(own[i], axis, loss ? null : shift(own[i].loss, own[i].x)),
    });
  }
  const refused = refusals('No law', [...laws.values()], data);
  const fitted = [...laws.values()].some((law) => law.x);
  figureOf(host, {
    id: 'loss-compute', redraw,
    caption: [el('b', {}, 'Figure 1. '), `Loss against compute. Points: ${computeView.means ? 'means of ln L over the seeds of a size' : 'runs'}${fitted ? '; lines: fitted power laws' : ''}`
      + `${fitted && computeView.bands ? '; bands: 95% of the law, pointwise' : ''}${computeView.show === 'relative' ? '; each against the law of the baseline, whose own uncertainty is its band alone' : ''}. `
      + conventionWords(axis)],
    controls: [
      choice('loss-show', 'Vertical axis', Object.entries(SHOWN).filter(([k]) => k !== 'relative' || known).map(([k, [words]]) => [k, words]), computeView.show, (k) => {
        computeView.show = k;
        redraw();
      }),
      axisChoice('loss-axis', data, redraw),
      toggle('loss-xlog', 'Log compute', computeView.xlog, flip('xlog')),
      loss ? toggle('loss-ylog', 'Log loss', computeView.ylog, flip('ylog')) : null,
      toggle('loss-bands', 'Bands', computeView.bands, flip('bands')),
      several ? toggle('loss-means', 'Average seeds', computeView.means, flip('means')) : null,
    ],
    legend: legend('loss-compute', data, present, redraw),
    plot: (plot) => chart(plot, {
      label: 'Loss against compute', series, rule: loss ? undefined : 0,
      x: { label: axisLabel(axis), log: computeView.xlog },
      y: { label: SHOWN[computeView.show][1], log: loss && computeView.ylog },
    }),
    notes: refused,
    values: valuesOf('loss-compute', 'Every run', ['size', 'variant', 'seed', axis.unit, 'loss (nats)', 'off its law (%)'], () => runs.map((r) => {
      const law = laws.get(r.variant);
      const off = law && law.A !== undefined ? signed(100 * (r.loss / (law.A * r.x ** -law.alpha) - 1)) : '-';
      return [r.size, data.variants[r.variant], r.seed, brief(r.x), r.loss.toFixed(4), off];
    })),
  });
}

// Why some have none; where many have none, the reason of the first stands for all.
function refusals(what, rows, data) {
  const [first, ...others] = rows.filter((row) => row.refused);
  if (!first) return [];
  const names = others.map((row) => data.variants[row.variant]);
  return [`${what} for ${data.variants[first.variant]}: ${first.refused}`, ...(names.length ? [`${what} for ${names.join(', ')} either.`] : [])];
}

function pointsOf(compute, axis) {
  return compute.runs.map((run, i) => ({ ...run, x: compute.compute[axis.key][i] }));
}

// One point a size and variant: geometric means, as the laws are fitted to.
function meansOf(runs) {
  const groups = new Map();
  for (const run of runs) {
    const key = JSON.stringify([run.variant, run.size]);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(run);
  }
  const mean = (group, key) => Math.exp(group.reduce((sum, run) => sum + Math.log(run[key]), 0) / group.length);
  return [...groups.values()].map((group) => ({ ...group[0], x: mean(group, 'x'), loss: mean(group, 'loss'), n: group.length }));
}

function pointWords(run, axis, percent) {
  const whose = run.n ? `mean of ${run.n} seed${run.n === 1 ? '' : 's'}` : `seed ${run.seed}`;
  const words = [`${run.size}, ${whose}`, `loss ${run.loss.toFixed(4)} nats`, `at ${brief(run.x)} ${axis.unit}`];
  return percent === null ? words : [...words, `${signed(percent)}%`];
}

function conventionWords(axis) {
  if (axis.unit === 's') return 'Time: seconds in training steps, on the hardware of the runs.';
  return `FLOP convention: ${axis.label}${axis.meaning ? ` (${axis.meaning})` : ''}.`;
}

function multiplierFigure(host, data, redraw) {
  const axis = axisOf(data);
  const rows = data.compute.multipliers[axis.key];
  const refused = refusals('No curve', rows, data);
  if (!rows.some((row) => row.x)) {
    host.append(...refused.map((words) => el('p', { class: 'note' }, words)));
    return;
  }
  const present = rows.map((row) => row.variant);
  const drawn = rows.filter((row) => row.x && !hiddenVariants.has(row.variant));
  const series = drawn.flatMap((row) => {
    const style = look(row.variant);
    const name = data.variants[row.variant];
    const part = (inside) => row.y.map((y, i) => {
      const here = row.inside[i] === inside;
      const joins = !inside && (row.inside[i - 1] || row.inside[i + 1]);
      return here || joins ? y : null;
    });
    const common = { name, look: style.look, x: row.x, line: true };
    const words = (i) => [
      `${times(row.y[i])}x [${times(row.low[i])}, ${times(row.high[i])}]`, `at ${brief(row.x[i])} ${axis.unit}`,
      ...(row.inside[i] ? [] : ['extrapolates the baseline'])];
    return [
      { ...common, dash: style.dash, y: part(1) },
      { ...common, dash: '2 4', y: part(0) },
      { ...common, line: false, y: row.y, ...(computeView.bands ? { low: row.low, high: row.high } : {}), text: words },
      { name, look: style.look, marker: style.shape, x: row.by_size.map((s) => s.x), y: row.by_size.map((s) => s.y),
        text: (i) => [`${row.by_size[i].size} alone: ${times(row.by_size[i].y)}x`, `at ${brief(row.by_size[i].x)} ${axis.unit}, no interval`] },
    ];
  });
  // A curve that is known to little would flatten the others: bands may leave the frame.
  const middle = drawn.flatMap((row) => [...row.y, ...row.by_size.map((s) => s.y), 1]);
  const [low, high] = extent(middle, true, 0.1);
  const bands = extent(drawn.flatMap((row) => [...row.low, ...row.high]), true, 0.02);
  const limits = drawn.length ? [Math.min(low, Math.max(bands[0], low / 1.6)), Math.max(high, Math.min(bands[1], high * 1.6))] : [0.5, 2];
  figureOf(host, {
    id: 'multiplier', redraw,
    caption: [el('b', {}, 'Figure 2. '), `Compute that ${data.baseline} would need for a variant\u2019s loss, over what the variant took. Lines: each curve with its own exponent, `
      + 'with pointwise 95% bands; dotted where the baseline is extrapolated. Points: each size alone. ' + conventionWords(axis)],
    controls: [
      axisChoice('multiplier-axis', data, redraw),
      toggle('multiplier-xlog', 'Log compute', computeView.xlog, () => {
        computeView.xlog = !computeView.xlog;
        redraw();
      }),
      toggle('multiplier-ylog', 'Log multiplier', computeView.mlog, () => {
        computeView.mlog = !computeView.mlog;
        redraw();
      }),
      toggle('multiplier-bands', 'Bands', computeView.bands, () => {
        computeView.bands = !computeView.bands;
        redraw();
      }),
    ],
    legend: legend('multiplier', data, present, redraw),
    plot: (plot) => chart(plot, {
      label: `Compute multiplier over ${data.baseline}, by compute`, series, rule: 1,
      x: { label: axis.unit === 's' ? axisLabel(axis) : `the variant\u2019s ${axisLabel(axis)}`, log: computeView.xlog },
      y: { label: 'compute multiplier', log: computeView.mlog, limits },
    }),
    notes: refused,
    values: valuesOf('multiplier', 'Multiplier at a few computes', ['variant', axis.unit, 'multiplier', 'baseline'], () => rows.filter((row) => row.x).flatMap((row) => (
      [0, 0.25, 0.5, 0.75, 1].map((share) => Math.round(share * (row.x.length - 1))).map((i) => [
        data.variants[row.variant], brief(row.x[i]), `${times(row.y[i])}x [${times(row.low[i])}, ${times(row.high[i])}]`, row.inside[i] ? 'observed' : 'extrapolated'])))),
  });
}
