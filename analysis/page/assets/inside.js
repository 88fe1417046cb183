// Figures 4 and 5: what a cell did by depth, and what depth attention read.
const insideView = { cell: null, lines: 'variants', site: 'all', metrics: ['input_rms', 'grad_norm'], mode: null };

const METRICS = {
  output_rms: 'output RMS', input_rms: 'input RMS', grad_norm: 'gradient norm', update_ratio: 'update / weight norm',
  alpha_entropy: 'entropy of alpha (nats)', embedding_weight: 'weight on the embedding', query_norm: 'query norm |w|',
  max_read: 'largest ||h||', composite_gain: 'composite gain', stream_similarity: 'stream similarity',
};
const missing = (v) => v === undefined || v === null;
const metricName = (metric) => METRICS[metric] || metric;
const MODES = { remove: 'removed', average: 'replaced by its mean over tokens' };
const FEW = 0.05; // of the scale: smaller falls of the loss get no colours of their own
const USUAL = 0.98; // share of the changes within the scale of colours
const SITES = [['all', 'attention and MLP'], ['attention', 'attention'], ['mlp', 'MLP'], ['block', 'blocks of layers']];

function insideFigures(host, data, redraw) {
  const { cells, notes } = data.dynamics;
  for (const words of notes) host.append(el('p', { class: 'note' }, words));
  const known = data.grid.filter((cell) => cells[cell.id]);
  if (!known.length) return;
  const view = insideView;
  const chosen = known.find((cell) => cell.id === view.cell) || telling(known, cells);
  view.cell = chosen.id;
  const set = (key) => (value) => {
    view[key] = value;
    redraw();
  };
  const sites = new Set(known.flatMap((cell) => cells[cell.id].depth.map((row) => row.site)));
  host.append(el('div', { class: 'controls' },
    choice('inside-cell', 'Cell', known.map((cell) => [cell.id, cellWords(cell, data)]), chosen.id, set('cell')),
    choice('inside-lines', 'Lines', [['variants', 'variants of this size, at the end'], ['steps', 'this cell, over training']], view.lines, set('lines')),
    choice('inside-site', 'Sublayers', SITES.filter(([key]) => key === 'all' || sites.has(key)), view.site, set('site'))));
  depthFigure(host, data, chosen, known, redraw);
  alphaFigure(host, data, chosen, redraw);
}

// Of the largest size the first seed, with depth attention if any has it.
function telling(known, cells) {
  const attending = known.filter((cell) => cells[cell.id].alpha);
  const among = attending.length ? attending : known;
  const largest = among.filter((cell) => cell.size === among[among.length - 1].size);
  return largest.filter((cell) => cell.seed === largest[0].seed).pop();
}

function cellWords(cell, data) {
  return `${cell.size} / ${data.variants[cell.variant]} / seed ${cell.seed}`;
}

const siteFits = (site) => (insideView.site === 'all' ? ['attention', 'mlp', 'read', ''].includes(site) : site === insideView.site);

// One line of a metric by sublayer, sites merged in order of depth.
function lineOf(dynamics, metric, step) {
  const points = [];
  let at = null;
  for (const row of dynamics.depth) {
    if (row.metric !== metric || !siteFits(row.site)) continue;
    const i = step === null ? row.steps.length - 1 : row.steps.indexOf(step);
    if (i < 0) continue;
    at = row.steps[i];
    row.sublayers.forEach((sublayer, k) => points.push([sublayer, row.values[i][k], row.site]));
  }
  points.sort((a, b) => a[0] - b[0]);
  return { step: at, x: points.map((p) => p[0]), y: points.map((p) => p[1]), sites: points.map((p) => p[2]) };
}

function depthFigure(host, data, chosen, known, redraw) {
  const { cells } = data.dynamics;
  const view = insideView;
  const metrics = [...new Set(cells[chosen.id].depth.map((row) => row.metric))];
  const overTime = view.lines === 'steps';
  const siblings = overTime ? [chosen] : known.filter((cell) => cell.size === chosen.size && cell.seed === chosen.seed);
  const present = [...new Set(siblings.map((cell) => cell.variant))].sort((a, b) => a - b);
  const panels = el('div', { class: 'panels' });
  const made = el('figure', { id: 'depth' },
    el('figcaption', {}, el('b', {}, 'Figure 4. '), overTime
      ? `${cellWords(chosen, data)}: by depth, at steps ${stepsOf(cells[chosen.id]).map(whole).join(', ')}; the darker the later.`
      : `Size ${chosen.size}, seed ${chosen.seed}: by depth, each at its last measured step. One run each, no interval.`),
    overTime ? null : legend('depth', data, present, redraw), panels);
  host.append(made);
  const drawings = []; // once both panels are there: a panel alone is as wide as the page
  view.metrics.forEach((metric, n) => {
    const shown = metrics.includes(metric) ? metric : metrics[Math.min(n, metrics.length - 1)];
    const plot = el('div', { class: 'plot', id: `depth-plot-${n}` });
    const series = overTime ? overTraining(cells[chosen.id], chosen, shown) : siblings
      .filter((cell) => !hiddenVariants.has(cell.variant)).map((cell) => depthSeries(lineOf(cells[cell.id], shown, null), data.variants[cell.variant], cell.variant, shown))
      .filter((s) => s.x.length);
    const positive = series.every((s) => s.y.every((v) => v === null || v > 0));
    const panel = el('div', {}, el('div', { class: 'controls' },
      choice(`depth-metric-${n}`, n ? 'Right' : 'Left', metrics.map((key) => [key, metricName(key)]), shown, (key) => {
        view.metrics[n] = key;
        redraw();
      })), plot);
    panels.append(panel);
    drawings.push(() => chart(plot, {
      label: `${metricName(shown)} by sublayer`, series, ratio: 0.62,
      x: { label: 'sublayer (attention 2l, MLP 2l + 1)', whole: true },
      y: { label: metricName(shown), log: positive && spread(series) > 10 },
    }));
    panel.append(valuesOf(`depth-${n}`, `${metricName(shown)} by sublayer`, ['sublayer', ...series.map((s) => s.name)], () => {
      const all = [...new Set(series.flatMap((s) => s.x))].sort((a, b) => a - b);
      return all.map((x) => [String(x), ...series.map((s) => brief(s.y[s.x.indexOf(x)], 4))]);
    }));
  });
  for (const draw of drawings) draw();
}

function spread(series) {
  const [low, high] = extent(series.flatMap((s) => s.y), true, 0);
  return high / low;
}

function depthSeries(line, name, variant, metric) {
  const style = look(variant);
  const where = (i) => ({ attention: `attention of layer ${line.x[i] >> 1}`, mlp: `MLP of layer ${line.x[i] >> 1}`, read: 'the read before the head', block: `block from sublayer ${line.x[i]}` })[line.sites[i]] || `sublayer ${line.x[i]}`;
  return {
    name, look: style.look, dash: style.dash, line: true, marker: style.shape, x: line.x, y: line.y,
    text: (i) => [where(i), `${metricName(metric)} ${brief(line.y[i], 4)}`, `step ${whole(line.step)}`],
  };
}

function stepsOf(dynamics) {
  return [...new Set(dynamics.depth.filter((row) => insideView.metrics.includes(row.metric)).flatMap((row) => row.steps))].sort((a, b) => a - b);
}

function overTraining(dynamics, cell, metric) {
  const steps = [...new Set(dynamics.depth.filter((row) => row.metric === metric && siteFits(row.site)).flatMap((row) => row.steps))].sort((a, b) => a - b);
  return steps.map((step, k) => {
    const s = depthSeries(lineOf(dynamics, metric, step), `step ${whole(step)}`, cell.variant, metric);
    const opacity = 0.3 + (0.7 * (k + 1)) / steps.length;
    return { ...s, opacity, dash: k === steps.length - 1 ? undefined : DASHES[1 + (k % 3)], marker: k === steps.length - 1 ? s.marker : undefined };
  });
}

function alphaFigure(host, data, chosen, redraw) {
  const { alpha, ablation } = data.dynamics.cells[chosen.id];
  if (!alpha) {
    host.append(el('p', { class: 'note' }, `${cellWords(chosen, data)} has no depth attention, or recorded none of its weights.`));
    return;
  }
  const view = insideView;
  const modes = Object.keys(ablation || {});
  if (!modes.includes(view.mode)) view.mode = modes[0] || null;
  const left = el('div', { class: 'plot', id: 'alpha-plot' });
  const right = el('div', { class: 'plot', id: 'ablation-plot' });
  const weights = mapRows(alpha);
  const measured = view.mode ? ablation[view.mode] : null;
  const change = measured ? `Loss change, source ${MODES[view.mode] || view.mode} (${whole(measured.tokens)} tokens)` : 'Loss change without the source';
  const panels = el('div', { class: 'panels' }, el('div', {}, el('h3', {}, 'Mean weight alpha'), left),
    el('div', {}, el('h3', {}, change), measured ? right : el('p', { class: 'note' }, 'No ablation recorded for this cell: scaling ablate-sources RUN measures it. Weights alone are not importance.')));
  const numbers = alpha.names.length > 1 && alpha.names[1].startsWith('block') ? 's block s' : 's the output of sublayer s − 1';
  host.append(el('figure', { id: 'alpha' }, el('figcaption', {}, el('b', {}, 'Figure 5. '),
    `${cellWords(chosen, data)}: what each sublayer reads. Left, mean weights over tokens at step ${whole(alpha.step)}; right, what the validation loss does without the source, in one read of several or, at the bottom, in all of a kind. Source 0 is the embedding, ${numbers}; out is the read before the head. One run, no interval.`),
  modes.length > 1 ? el('div', { class: 'controls' }, choice('inside-mode', 'The source taken away is', modes.map((mode) => [mode, MODES[mode] || mode]), view.mode, (mode) => {
    view.mode = mode;
    redraw();
  })) : null, panels));
  const common = { n: alpha.n_sources, x: 'source', y: 'sublayer' };
  const source = (c) => `source ${c}: ${alpha.names[c] || '?'}`;
  heat(left, {
    ...common, label: 'Mean weight of each source in each read', rows: weights, low: 0, high: 1, root: true, ends: ['0', '0.25', '1'],
    text: (row, c) => [row.name, source(c), missing(row.values[c]) ? 'not read' : `alpha ${row.values[c].toFixed(3)}`],
  });
  const columns = ['read', 'first', 'second', 'third'];
  left.after(valuesOf('alpha', 'The three largest weights of each read', columns, () => weights.map((row) => [
    row.name, ...top(row.values, (v) => v).map(([c, v]) => `${alpha.names[c]} ${v.toFixed(3)}`)]), 'The largest as a table'));
  if (measured) changeMap(right, { ...common, n: measured.n_sources }, weights, mapRows(measured), source, columns, alpha.names);
}

// Rows stand beside those of the weights, which set the scale; cuts of many reads at once come last.
function changeMap(host, common, weights, measured, source, columns, names) {
  const single = weights.map((row) => measured.find((other) => other.sublayer === row.sublayer) || { ...row, values: [] });
  const together = measured.filter((row) => row.sublayer < 0);
  const known = (rows) => rows.flatMap((row) => row.values.filter((v) => v !== null));
  const sizes = known(single).map(Math.abs).sort((a, b) => a - b);
  const usual = sizes[Math.ceil(USUAL * sizes.length) - 1] || sizes[sizes.length - 1] || 1e-12;
  const largest = Math.max(...known(measured), 0);
  const rows = [...single, ...together];
  const half = Math.min(...known(single), 0) >= -FEW * usual;
  const end = `+${brief(usual)}${largest > usual ? `, to +${brief(largest)}` : ''} nats`;
  heat(host, {
    ...common, label: 'Change of the validation loss without a source', rows, low: half ? 0 : -usual, high: usual,
    colours: half ? 'half' : 'diverging', ends: half ? ['0', end] : [`-${brief(usual)}`, '0', end],
    text: (row, c) => [row.name, source(c), missing(row.values[c]) ? 'not measured' : `${signed(row.values[c])} nats`],
  });
  host.after(valuesOf('ablation', 'The three sources of each read that matter most', columns, () => rows.filter((row) => row.values.length).map((row) => [
    row.name, ...top(row.values, Math.abs).map(([c, v]) => `${names[c]} ${signed(v)}`)]), 'The largest as a table'));
}

function mapRows(map) {
  const rows = map.sublayers.map((sublayer, i) => ({ sublayer, site: map.sites[i], values: map.rows[i].map((v) => (v === null ? null : v * map.unit)) }));
  return rows.filter((row) => insideView.site === 'block' || siteFits(row.site)).map((row) => ({
    ...row,
    ...(row.sublayer < 0 ? togetherWords(row.site) : readWords(row)),
  }));
}

function readWords({ site, sublayer }) {
  return {
    short: site === 'read' ? 'out' : `${site === 'mlp' ? 'M' : site === 'attention' ? 'A' : ''}${sublayer}`,
    name: { attention: `attention of layer ${sublayer >> 1}`, mlp: `MLP of layer ${sublayer >> 1}`, read: 'read before the head' }[site] || `sublayer ${sublayer}`,
  };
}

// A source taken from many reads at once.
function togetherWords(site) {
  return { short: { attention: 'all A', mlp: 'all M' }[site] || 'all', name: { attention: 'all attention', mlp: 'all MLPs' }[site] || 'all reads' };
}

function top(values, size) {
  const ranked = values.map((v, c) => [c, v]).filter(([, v]) => v !== null).sort((a, b) => size(b[1]) - size(a[1])).slice(0, 3);
  return ranked;
}
