// A heat map of sublayers by sources, in vector rectangles of a few dozen colours.
const CIVIDIS = ['#00224e', '#123570', '#3b496c', '#575d6d', '#707173', '#8a8678', '#a59c74', '#c3b369', '#e1cc55', '#fee838'];
const DIVERGING = ['#542788', '#8073ac', '#b2abd2', '#d8daeb', '#f7f7f7', '#fee0b6', '#fdb863', '#e08214', '#b35806'];
const DIVERGING_DARK = ['#c2a5f0', '#9a82cc', '#6d5f96', '#47425f', '#2a3038', '#5d4530', '#97602f', '#d07f35', '#ffa257'];
const LEVELS = 36;

function mixed(stops, share) {
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const i = Math.min(Math.floor(place), stops.length - 2);
  const part = (stop, k) => parseInt(stop.slice(1 + 2 * k, 3 + 2 * k), 16);
  const channel = (k) => Math.round(part(stops[i], k) + (place - i) * (part(stops[i + 1], k) - part(stops[i], k)));
  return `rgb(${channel(0)} ${channel(1)} ${channel(2)})`;
}

// kind: undefined for sequential colours, 'diverging', or 'half' for the upper half of these.
function painted(node, given, kind) {
  const share = kind === 'half' ? 0.5 + given / 2 : given;
  node.style.fill = kind ? `light-dark(${mixed(DIVERGING, share)}, ${mixed(DIVERGING_DARK, share)})` : mixed(CIVIDIS, share);
  return node;
}

// spec: { label, rows: [{name, short, values}], n, low, high, root, colours, x, y, ends: [words, words], text(row, source) }
function heat(host, spec) {
  host.replaceChildren();
  const width = widthOf(host, 240);
  const pad = { left: 62, right: 12, top: 8, bottom: 92 };
  const cell = { w: (width - pad.left - pad.right) / spec.n };
  cell.h = Math.min(Math.max(Math.min(cell.w, 26), 3), 420 / spec.rows.length + 2);
  const [x1, y1] = [width - pad.right, pad.top + cell.h * spec.rows.length];
  const height = y1 + pad.bottom - pad.top;
  const lap = { w: (cell.w + 0.4).toFixed(2), h: (cell.h + 0.4).toFixed(2) }; // else seams show on paper
  const paths = Array(LEVELS + 1).fill('');
  spec.rows.forEach((row, r) => row.values.forEach((v, c) => {
    if (v === null || v === undefined) return;
    const share = Math.min(Math.max((v - spec.low) / (spec.high - spec.low || 1), 0), 1);
    paths[Math.round((spec.root ? Math.sqrt(share) : share) * LEVELS)] +=
      `M${(pad.left + c * cell.w).toFixed(2)} ${(pad.top + r * cell.h).toFixed(2)}h${lap.w}v${lap.h}h-${lap.w}z`;
  }));
  const group = svg('g', { 'aria-hidden': 'true' }, paths.map((d, i) => (d
    ? painted(svg('path', { d, 'shape-rendering': 'crispEdges' }), i / LEVELS, spec.colours) : null)));
  const everyX = Math.ceil(spec.n / Math.max(2, Math.floor((x1 - pad.left) / 30)));
  for (let c = 0; c < spec.n; c += everyX) {
    group.append(svg('text', { x: pad.left + (c + 0.5) * cell.w, y: y1 + 16, 'text-anchor': 'middle' }, String(c)));
  }
  const everyY = Math.ceil(15 / cell.h);
  spec.rows.forEach((row, r) => {
    if (r % everyY === 0) group.append(svg('text', { x: pad.left - 6, y: pad.top + (r + 0.5) * cell.h + 4, 'text-anchor': 'end' }, row.short));
  });
  const middle = (pad.top + y1) / 2;
  group.append(svg('text', { class: 'axis', x: (pad.left + x1) / 2, y: y1 + 34, 'text-anchor': 'middle' }, spec.x),
    svg('text', { class: 'axis', x: 13, y: middle, 'text-anchor': 'middle', transform: `rotate(-90 13 ${middle})` }, spec.y));
  for (let i = 0; i <= LEVELS; i += 1) {
    const step = (x1 - pad.left) / (LEVELS + 1);
    const patch = svg('rect', { x: pad.left + i * step, y: y1 + 48, width: step + 0.5, height: 9, 'shape-rendering': 'crispEdges' });
    group.append(painted(patch, i / LEVELS, spec.colours));
  }
  const ends = spec.ends.length === 3 ? [pad.left, (pad.left + x1) / 2, x1] : [pad.left, x1];
  const anchors = spec.ends.length === 3 ? ['start', 'middle', 'end'] : ['start', 'end'];
  spec.ends.forEach((words, i) => group.append(svg('text', { x: ends[i], y: y1 + 72, 'text-anchor': anchors[i] }, words)));
  const box = svg('g');
  const picture = svg('svg', {
    viewBox: `0 0 ${width} ${height}`, width, height, tabindex: 0, role: 'application', 'aria-roledescription': 'heat map',
    'aria-label': `${spec.label}. Arrow keys move between cells; the largest are in the table below.`,
  }, group, box);
  const tip = el('div', { class: 'tip', hidden: '' });
  host.append(picture, tip);

  let here = null;
  function show(r, c, aloud) {
    if (r < 0 || c < 0 || r >= spec.rows.length || c >= spec.n) return;
    here = [r, c];
    const [px, py] = [pad.left + c * cell.w, pad.top + r * cell.h];
    box.replaceChildren(svg('rect', { class: 'box', x: px, y: py, width: cell.w, height: cell.h }));
    const words = spec.text(spec.rows[r], c);
    tip.replaceChildren(...words.map((line) => el('p', {}, line)));
    tip.hidden = false;
    const ratio = host.clientWidth / width;
    const left = (px + cell.w) * ratio + 10;
    tip.style.left = `${left + tip.offsetWidth > host.clientWidth ? Math.max(0, px * ratio - tip.offsetWidth - 10) : left}px`;
    tip.style.top = `${Math.max(0, Math.min(py * ratio, host.clientHeight - tip.offsetHeight))}px`;
    if (aloud) announce(words.join(', '));
  }
  function hide() {
    box.replaceChildren();
    tip.hidden = true;
  }
  function point(event) {
    const frame = picture.getBoundingClientRect();
    const factor = width / frame.width;
    const c = Math.floor(((event.clientX - frame.left) * factor - pad.left) / cell.w);
    const r = Math.floor(((event.clientY - frame.top) * factor - pad.top) / cell.h);
    if (r >= 0 && c >= 0 && r < spec.rows.length && c < spec.n) show(r, c, false); else hide();
  }
  const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
  picture.addEventListener('pointermove', point);
  picture.addEventListener('pointerdown', point);
  picture.addEventListener('pointerleave', hide);
  picture.addEventListener('blur', hide);
  picture.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') hide();
    if (!moves[event.key]) return;
    event.preventDefault();
    const [dr, dc] = here ? moves[event.key] : [0, 0];
    show((here ? here[0] : 0) + dr, (here ? here[1] : 0) + dc, true);
  });
}
