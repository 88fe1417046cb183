// Figure 3: loss while training, and its difference to the baseline's.
const trainingView = { size: null, x: 'step', xlog: false, ylog: true, means: true, show: 'loss', start: false };
const ALL = '\u0000all';

const HORIZONTAL = { step: 'step', tokens: 'tokens' };

function trainingFigure(host, data, redraw) {
  const { runs, means, sizes } = data.training;
  const logged = sizes.filter((size) => runs.some((run) => run.size === size));
  if (!logged.length) {
    host.append(el('p', { class: 'note' }, 'No cell has logged a loss yet.'));
    return;
  }
  const view = trainingView;
  if (view.size === null || (view.size !== ALL && !logged.includes(view.size))) view.size = fullest(runs, logged);
  const of = runs.filter((run) => view.size === ALL || run.size === view.size);
  const paired = runs.some((run) => run.difference);
  if (view.show === 'difference' && !paired) view.show = 'loss';
  const difference = view.show === 'difference';
  const averaging = view.means && means.length > 0;
  const averaged = averaging ? [
    ...means.filter((mean) => view.size === ALL || mean.size === view.size),
    ...of.filter((run) => !means.some((mean) => mean.size === run.size && mean.variant === run.variant)),
  ] : of;
  const conventions = Object.keys(runs[0].compute_per_step).filter((key) => runs.every((run) => key in run.compute_per_step));
  if (!HORIZONTAL[view.x] && !conventions.includes(view.x)) view.x = 'step';
  const per = (run) => ({ step: 1, tokens: run.tokens_per_step })[view.x] || run.compute_per_step[view.x];
  const present = [...new Set(of.map((run) => run.variant))].sort((a, b) => a - b);
  const series = averaged.filter((run) => !hiddenVariants.has(run.variant) && (!difference || run.difference))
    .sort((a, b) => b.variant - a.variant).map((run) => trainingSeries(run, data, difference, per(run)));
  const bucketed = of.find((run) => run.curve.each);
  const flip = (key) => () => {
    view[key] = !view[key];
    redraw();
  };
  const where = HORIZONTAL[view.x] || `training compute (PFLOP/s-days, ${short(view.x)})`;
  figureOf(host, {
    id: 'training-curve', redraw,
    caption: [el('b', {}, 'Figure 3. '), difference
      ? `Training loss minus that of ${data.baseline} at the same step, size and seed: means over neighbouring steps${averaging ? '; bands: pointwise 95% t intervals over the seeds' : ', without an interval'}. Below zero is better.`
      : `Training loss${averaging ? ', means over seeds' : ', every run'}.${bucketed ? ` Long logs are drawn as means of up to ${whole(bucketed.curve.each)} logged values, bands from the least to the greatest.` : ''}${view.start ? '' : ' The vertical axis leaves out the first tenth.'}`],
    controls: [
      choice('training-size', 'Size', [...logged.map((size) => [size, size]), ...(logged.length > 1 ? [[ALL, 'all sizes']] : [])], view.size, (size) => {
        view.size = size;
        redraw();
      }),
      paired ? choice('training-show', 'Vertical axis', [['loss', 'Loss'], ['difference', 'Difference to the baseline']], view.show, (show) => {
        view.show = show;
        redraw();
      }) : null,
      choice('training-x', 'Horizontal axis', [...Object.entries(HORIZONTAL), ...conventions.map((key) => [key, `compute, ${key}`])], view.x, (x) => {
        view.x = x;
        redraw();
      }),
      toggle('training-xlog', `Log ${HORIZONTAL[view.x] || 'compute'}`, view.xlog, flip('xlog')),
      difference ? null : toggle('training-ylog', 'Log loss', view.ylog, flip('ylog')),
      difference ? null : toggle('training-start', 'From the start', view.start, flip('start')),
      means.length ? toggle('training-means', 'Average seeds', view.means, flip('means')) : null,
    ],
    legend: legend('training-curve', data, present, redraw, false),
    plot: (plot) => chart(plot, {
      label: difference ? 'Difference of training losses by step' : 'Training loss by step', series, together: series.length < 12, rule: difference ? 0 : undefined,
      x: { label: where, log: view.xlog },
      y: { label: difference ? `loss minus ${short(data.baseline || '')} (nats)` : 'training loss (nats)', log: view.ylog && !difference, limits: limitsOf(series, difference, view) },
    }),
    notes: [],
    values: valuesOf('training-curve', `${difference ? 'Difference' : 'Training loss'} after a part of the steps so far`, ['cell', '10%', '25%', '50%', '75%', '100%'], () => series.map((s) => [
      s.name, ...[0.1, 0.25, 0.5, 0.75, 1].map((share) => s.value(Math.round(share * (s.x.length - 1))))])),
  });
}

// The largest size that most cells have reached: what a reader looks for first.
function fullest(runs, logged) {
  const count = (size) => runs.filter((run) => run.size === size).length;
  const most = Math.max(...logged.map(count));
  return logged.filter((size) => count(size) === most).pop();
}

function trainingSeries(run, data, difference, factor) {
  const curve = difference ? run.difference : run.curve;
  const { look: colour, dash } = look(run.variant);
  const seeds = run.n_seeds ? `mean of ${run.n_seeds} seeds` : `seed ${run.seed}`;
  const state = run.state && run.state !== 'done' ? `, ${run.state}` : '';
  const value = (i) => (difference ? signed(curve.m[i]) : brief(curve.m[i], 5));
  const banded = curve.lo && (!difference || curve.interval);
  return {
    name: `${data.variants[run.variant]}, ${run.size}, ${seeds}${state}`, look: colour, dash, line: true,
    x: curve.s.map((step) => step * factor), y: curve.m, low: banded ? curve.lo : undefined, high: banded ? curve.hi : undefined, value,
    text: (i) => [
      `step ${whole(curve.s[i])}`,
      difference
        ? `${value(i)} nats${curve.interval ? ` [${signed(curve.lo[i])}, ${signed(curve.hi[i])}]` : ''}`
        : `loss ${value(i)} nats${banded ? `, ${brief(curve.lo[i], 5)} to ${brief(curve.hi[i], 5)}` : ''}`],
  };
}

function limitsOf(series, difference, view) {
  if (!series.length) return [1, 2];
  if (view.start && !difference) return undefined;
  const later = series.flatMap((s) => {
    const from = 0.1 * s.x[s.x.length - 1];
    const kept = (values) => values.filter((_, i) => s.x[i] >= from);
    return [...kept(s.y), ...(difference && s.low ? [...kept(s.low), ...kept(s.high)] : [])];
  });
  return extent(difference ? [...later, 0] : later, view.ylog && !difference, 0.06);
}
