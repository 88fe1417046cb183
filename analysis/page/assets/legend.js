// Which variants are shown, the same in all figures.
const hiddenVariants = new Set();
const DASHES = [undefined, '6 4', '8 3 2 3', '2 3'];

// As in analysis/style.py: the baseline black with circles; of the others, a colour that comes again
// has another marker and another line.
function look(i) {
  const k = data.variants[0] === data.baseline ? i - 1 : i;
  if (k < 0) return { look: 'v0', shape: 0 };
  const round = Math.floor(k / 6);
  return { look: `v${1 + (k % 6)}`, dash: DASHES[round % 4], shape: (((k % 6) + round) % 7 + 1) % 7 };
}

function swatch(i, marker = true) {
  const { look: colour, dash, shape } = look(i);
  return svg('svg', { width: 30, height: 14, viewBox: '-15 -7 30 14', 'aria-hidden': 'true' },
    svg('line', { class: `line ${colour}`, x1: -14, x2: 14, y1: 0, y2: 0, 'stroke-dasharray': dash }),
    marker ? svg('path', { class: `mark ${colour}`, d: SHAPES[shape] }) : null);
}

function legend(id, data, present, redraw, marker = true) {
  const change = (act) => () => {
    act();
    redraw();
  };
  const entries = present.map((i) => el('li', {}, el('button', {
    type: 'button', id: `${id}-variant-${i}`, 'aria-pressed': String(!hiddenVariants.has(i)),
    onclick: change(() => (hiddenVariants.has(i) ? hiddenVariants.delete(i) : hiddenVariants.add(i))),
  }, swatch(i, marker), data.variants[i])));
  if (present.length > 4) {
    entries.push(
      el('li', {}, el('button', { type: 'button', id: `${id}-all`, onclick: change(() => hiddenVariants.clear()) }, 'All')),
      el('li', {}, el('button', {
        type: 'button', id: `${id}-none`, onclick: change(() => data.variants.forEach((_, i) => hiddenVariants.add(i))),
      }, 'None')));
  }
  return el('ul', { class: 'legend', 'aria-label': 'Variants shown' }, entries);
}
