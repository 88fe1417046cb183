// A line chart: series of points, lines and bands; values by pointer, touch and arrow keys.
//
// spec: { label, x: {label, log, whole}, y: {label, log, limits}, rule, together, series: [series] }
// series: { name, look, dash, marker, line, faint, x, y, low, high, text(i) }; a null y is a gap.
function chart(host, spec) {
  host.replaceChildren();
  const width = widthOf(host, 260);
  const height = Math.round(Math.min(Math.max(width * (spec.ratio || 0.5), 250), 440));
  const xs = extent(spec.series.flatMap((s) => s.x), spec.x.log, 0.03);
  const ys = spec.y.limits || extent(
    [...spec.series.flatMap((s) => [...s.y, ...(s.low || []), ...(s.high || [])]), ...(spec.rule === undefined ? [] : [spec.rule])],
    spec.y.log);
  const words = broken(spec.x.label, width - 80);
  const [bottom, top] = [height - 46 - 15 * (words.length - 1), 10];
  const y = scale(...ys, bottom, top, spec.y, 42, () => 20);
  const left = 34 + 7.2 * Math.max(...y.ticks.map((tick) => tick.label.length), 2);
  const inner = { x0: left, x1: width - 16, y0: bottom, y1: top };
  const x = scale(...xs, inner.x0, inner.x1, spec.x, 74, (label) => 12 + 7 * label.length);
  const clip = `clip-${host.id}`;
  const drawn = svg('g', { 'aria-hidden': 'true' }, axes(x, y, inner, words, spec.y.label),
    svg('clipPath', { id: clip }, svg('rect', { x: inner.x0, y: inner.y1, width: inner.x1 - inner.x0, height: inner.y0 - inner.y1 })));
  const body = svg('g', { 'clip-path': `url(#${clip})` });
  const banded = spec.series.filter((s) => s.low);
  for (const s of banded) body.append(band(s, x, y, Math.max(0.03, Math.min(0.13, 0.5 / banded.length))));
  if (spec.rule !== undefined) {
    body.append(svg('line', { class: 'zero', x1: inner.x0, x2: inner.x1, y1: y.at(spec.rule), y2: y.at(spec.rule) }));
  }
  for (const s of spec.series) if (s.line) body.append(line(s, x, y));
  for (const s of spec.series) if (s.marker !== undefined) body.append(marks(s, x, y));
  const cursor = svg('g');
  drawn.append(body, cursor);
  const picture = svg('svg', {
    viewBox: `0 0 ${width} ${height}`, width, height, tabindex: 0, role: 'application', 'aria-roledescription': 'chart',
    'aria-label': `${spec.label}. Arrow keys move between values; the same values are in the table below.`,
  }, drawn);
  host.append(picture);
  interact(host, picture, cursor, spec, x, y, inner, width);
}

// A label that is too long for its axis goes on before its bracket, on a second line.
function broken(label, width) {
  const at = label.indexOf(' (');
  return label.length * 6.4 > width && at > 0 ? [label.slice(0, at), label.slice(at + 1)] : [label];
}

function axes(x, y, inner, words, yWords) {
  const group = svg('g');
  for (const tick of y.ticks) {
    const at = y.at(tick.value);
    group.append(svg('line', { class: 'gridline', x1: inner.x0, x2: inner.x1, y1: at, y2: at }),
      svg('text', { x: inner.x0 - 8, y: at + 4, 'text-anchor': 'end' }, tick.label));
  }
  for (const tick of x.ticks) {
    const at = x.at(tick.value);
    group.append(svg('line', { class: 'gridline', x1: at, x2: at, y1: inner.y0, y2: inner.y1 }),
      svg('text', { x: at, y: inner.y0 + 18, 'text-anchor': 'middle' }, tick.label));
  }
  const middle = (inner.y0 + inner.y1) / 2;
  group.append(svg('line', { class: 'frame', x1: inner.x0, x2: inner.x1, y1: inner.y0, y2: inner.y0 }),
    ...words.map((line, i) => svg('text', { class: 'axis', x: (inner.x0 + inner.x1) / 2, y: inner.y0 + 38 + 15 * i, 'text-anchor': 'middle' }, line)),
    svg('text', { class: 'axis', x: 13, y: middle, 'text-anchor': 'middle', transform: `rotate(-90 13 ${middle})` }, yWords));
  return group;
}

const shown = (s, i, x, y) => s.y[i] !== null && (!x.log || s.x[i] > 0) && (!y.log || s.y[i] > 0);
const at = (v) => v.toFixed(1);

function line(s, x, y) {
  let path = '';
  let pen = 'M';
  for (let i = 0; i < s.x.length; i += 1) {
    if (!shown(s, i, x, y)) { pen = 'M'; continue; }
    path += `${pen}${at(x.at(s.x[i]))} ${at(y.at(s.y[i]))}`;
    pen = 'L';
  }
  return svg('path', { class: `line ${s.look}${s.faint ? ' faint' : ''}`, d: path, 'stroke-dasharray': s.dash, opacity: s.opacity });
}

function band(s, x, y, opacity) {
  const floor = y.log ? y.low : -Infinity;
  const forth = [];
  const back = [];
  for (let i = 0; i < s.x.length; i += 1) {
    if (s.low[i] === null || s.high[i] === null || (x.log && s.x[i] <= 0)) continue;
    forth.push(`${at(x.at(s.x[i]))} ${at(y.at(Math.max(s.low[i], floor)))}`);
    back.push(`${at(x.at(s.x[i]))} ${at(y.at(Math.max(s.high[i], floor)))}`);
  }
  return svg('path', { class: `band ${s.look}`, 'fill-opacity': opacity, d: forth.length ? `M${forth.join('L')}L${back.reverse().join('L')}Z` : '' });
}

const SHAPES = [
  'M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z', 'M-3.5 -3.5h7v7h-7Z', 'M0 -4.6L4.4 3.4H-4.4Z', 'M0 -5L5 0L0 5L-5 0Z',
  'M0 4.6L4.4 -3.4H-4.4Z', 'M-1.5 -4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3Z', 'M-4 -4L0 -1.4L4 -4L1.4 0L4 4L0 1.4L-4 4L-1.4 0Z',
];

function marks(s, x, y) {
  const group = svg('g');
  for (let i = 0; i < s.x.length; i += 1) {
    if (!shown(s, i, x, y)) continue;
    group.append(svg('path', { class: `mark ${s.look}`, d: SHAPES[s.marker], transform: `translate(${at(x.at(s.x[i]))} ${at(y.at(s.y[i]))})` }));
  }
  return group;
}

function interact(host, picture, cursor, spec, x, y, inner, width) {
  const live = spec.series.filter((s) => s.text);
  const points = live.map((s) => s.x.map((v, i) => (shown(s, i, x, y) ? [x.at(v), y.at(s.y[i])] : null)));
  const tip = el('div', { class: 'tip', hidden: '' });
  host.append(tip);
  let [current, place] = [-1, -1];

  function show(k, i, aloud) {
    [current, place] = [k, i];
    const [px, py] = points[k][i];
    const lines = spec.together ? beside(px) : [[live[k].name, live[k].text(i)]];
    cursor.replaceChildren(svg('line', { class: 'cursor', x1: px, x2: px, y1: inner.y0, y2: inner.y1 }),
      svg('circle', { class: `spot ${live[k].look}`, cx: px, cy: Math.min(Math.max(py, inner.y1), inner.y0), r: 4.5 }));
    tip.replaceChildren(el('p', {}, live[k].name), ...live[k].text(i).map((words) => el('p', {}, words)),
      ...lines.filter(([name]) => spec.together && name !== live[k].name).map(([name, words]) => el('p', {}, `${name}: ${words}`)));
    tip.hidden = false;
    const ratio = host.clientWidth / width;
    const left = px * ratio + 14;
    tip.style.left = `${left + tip.offsetWidth > host.clientWidth ? Math.max(0, px * ratio - tip.offsetWidth - 14) : left}px`;
    tip.style.top = `${Math.max(0, Math.min(py * ratio - 20, host.clientHeight - tip.offsetHeight))}px`;
    if (aloud) announce([live[k].name, ...live[k].text(i)].join(', '));
  }

  // The other series where the pointer is, in order of value, at most seven.
  function beside(px) {
    return live.map((s, k) => [s, nearest(points[k], px)]).filter(([, i]) => i >= 0)
      .sort(([s, i], [t, j]) => s.y[i] - t.y[j]).slice(0, 7).map(([s, i]) => [s.name, s.value(i)]);
  }

  function hide() {
    cursor.replaceChildren();
    tip.hidden = true;
  }

  function nearest(line, px) {
    let [best, found] = [18, -1];
    line.forEach((p, i) => {
      if (p && Math.abs(p[0] - px) < best) [best, found] = [Math.abs(p[0] - px), i];
    });
    return found;
  }

  function point(event) {
    const frame = picture.getBoundingClientRect();
    const factor = width / frame.width;
    const [px, py] = [(event.clientX - frame.left) * factor, (event.clientY - frame.top) * factor];
    let [best, found] = [60 ** 2, null];
    points.forEach((line, k) => line.forEach((p, i) => {
      if (!p) return;
      const distance = (p[0] - px) ** 2 + (p[1] - py) ** 2;
      if (distance < best) [best, found] = [distance, [k, i]];
    }));
    if (found) show(...found, false); else hide();
  }

  function walk(step, jump) {
    if (!live.length) return;
    let k = current < 0 ? 0 : (current + jump + live.length) % live.length;
    for (let tries = 0; tries < live.length && !points[k].some(Boolean); tries += 1) k = (k + (jump || 1)) % live.length;
    const line = points[k];
    if (!line.some(Boolean)) return;
    let i = place < 0 ? 0 : jump ? Math.min(place, line.length - 1) : place + step;
    if (place < 0) step = 1;
    while (line[i] === null) i += step || 1;
    if (!line[i]) { if (!jump || current < 0) return; i = line.findIndex(Boolean); }
    show(k, i, true);
  }

  const moves = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
  picture.addEventListener('pointermove', point);
  picture.addEventListener('pointerdown', point);
  picture.addEventListener('pointerleave', hide);
  picture.addEventListener('blur', hide);
  picture.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') hide();
    if (!moves[event.key]) return;
    event.preventDefault();
    walk(...moves[event.key]);
  });
}
