// The page: sections in order (id, name in the contents, title, drawing), drawn again as the data change.
let data = JSON.parse($('data').textContent);

const SECTIONS = [
  ['verdict', 'Verdict', 'Verdict', verdictSection],
  ['laws', 'Loss', 'Loss against compute', (host) => data.compute && [lossFigure(host, data, redrawFigures), tables(host, data.tables.laws)]],
  ['multipliers', 'Multipliers', 'Compute multipliers', multiplierSection],
  ['gap', 'Gap', 'Full against Block', (host) => tables(host, data.tables.gap)],
  ['sizes', 'Sizes', 'Losses by size', (host) => tables(host, data.tables.sizes)],
  ['training', 'Training', 'Training curves', (host) => data.grid.length && [trainingFigure(host, data, redrawFigures)]],
  ['inside', 'Inside', 'Inside a cell', (host) => data.grid.length && [insideFigures(host, data, redrawFigures)]],
  ['cells', 'Cells', 'Cells', cellsSection],
  ['configuration', 'Configuration', 'Configuration', (host) => tables(host, data.configuration)],
  ['provenance', 'Provenance', 'Provenance', provenanceSection],
];
const FIGURES = new Set(['laws', 'multipliers', 'training', 'inside']);

function tables(host, found) {
  if (!found || !found.length) return false;
  host.append(...found.map(tableOf));
  return true;
}

function verdictSection(host) {
  host.append(el('div', { class: 'sentences' }, data.verdict.map((words) => el('p', {}, words))));
  if (data.missing.length) {
    host.append(el('div', { class: 'missing' }, el('h3', {}, 'What is missing'), el('ul', {}, data.missing.map((words) => el('li', {}, words)))));
  }
  return true;
}

function multiplierSection(host) {
  const curves = data.compute && data.compute.multipliers[axisOf(data).key].length;
  if (curves) multiplierFigure(host, data, redrawFigures);
  return tables(host, data.tables.multipliers) || curves;
}

function cellsSection(host) {
  const { counts, tables: found } = data.cells;
  if (!data.grid.length) return false;
  host.append(el('p', {}, countWords(counts)));
  tables(host, found);
  if (!counts.failed) host.append(el('p', { class: 'note' }, 'No cell failed.'));
  return true;
}

function countWords(counts) {
  return Object.entries(counts).filter(([kind, n]) => n || kind === 'done').map(([kind, n]) => `${n} ${kind}`).join(', ');
}

function provenanceSection(host) {
  tables(host, data.provenance);
  const { 'fits.json': fits, 'results.csv': csv } = data.downloads;
  const files = [
    csv && ['results.csv', 'text/csv', () => csv, 'every cell, one a row'],
    fits && ['fits.json', 'application/json', () => JSON.stringify(fits, null, 2), 'laws, multipliers and what moves them, at full precision'],
    ['report.json', 'application/json', () => JSON.stringify(data), 'all that this page shows'],
  ].filter(Boolean);
  host.append(el('div', { id: 'downloads' }, el('h3', {}, 'Downloads'), el('ul', {}, files.map(([name, type, text, words]) => el('li', {},
    el('button', { type: 'button', id: `download-${name}`, onclick: () => download(name, type, text()) }, name), ` ${words}`)))));
  return true;
}

function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  el('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

// A figure: caption, controls, legend, drawing, notes, values as a table.
function figureOf(host, f) {
  const plot = el('div', { class: 'plot', id: `${f.id}-plot` });
  host.append(el('figure', { id: f.id }, el('figcaption', {}, f.caption), el('div', { class: 'controls' }, f.controls), f.legend, plot,
    f.notes.map((words) => el('p', { class: 'note' }, words)), f.values));
  f.plot(plot);
}

function render() {
  document.title = `${data.title}: scaling report`;
  $('title').textContent = data.title;
  const n = data.grid.length;
  const facts = [
    n ? `${data.cells.counts.done} of ${n} cells done` : null, `${data.variants.length} variant${data.variants.length === 1 ? '' : 's'}`,
    `baseline ${data.baseline || 'not known'}`, 'made '].filter(Boolean);
  $('summary').replaceChildren(facts.join(' \u00b7 '), el('time', { id: 'made' }, data.made));
  const contents = [];
  for (const [id, name, title, draw] of SECTIONS) {
    let section = $(id);
    if (!section) {
      section = el('section', { id, 'aria-labelledby': `${id}-title` });
      $('main').append(section);
    }
    section.replaceChildren(el('h2', { id: `${id}-title` }, title));
    section.hidden = !draw(section);
    if (!section.hidden) contents.push(el('li', {}, el('a', { id: `to-${id}`, href: `#${id}` }, name)));
  }
  $('contents').replaceChildren(...contents);
  markScrollable();
}

function redrawFigures() {
  keepingFocus(() => {
    for (const [id, , title, draw] of SECTIONS) {
      const section = $(id);
      if (!FIGURES.has(id) || section.hidden) continue;
      section.style.minHeight = `${section.offsetHeight}px`; // what is below stays where it is
      section.replaceChildren(el('h2', { id: `${id}-title` }, title));
      draw(section);
      section.style.minHeight = '';
    }
    markScrollable();
  });
}

function theme() {
  const dark = () => (document.documentElement.dataset.theme || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark';
  const show = () => $('theme').setAttribute('aria-pressed', String(dark()));
  $('theme').addEventListener('click', () => {
    document.documentElement.dataset.theme = dark() ? 'light' : 'dark';
    show();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', show);
  show();
}

function followWidth() {
  let width = $('main').clientWidth;
  new ResizeObserver(() => {
    if ($('main').clientWidth === width) return;
    width = $('main').clientWidth;
    requestAnimationFrame(redrawFigures);
  }).observe($('main'));
}

$('main').replaceChildren();
render();
theme();
followWidth();
$('print').addEventListener('click', () => print());
for (const [event, paper] of [['beforeprint', true], ['afterprint', false]]) {
  addEventListener(event, () => {
    onPaper = paper;
    redrawFigures();
  });
}
follow(data, (fresh) => {
  data = fresh;
  keepingFocus(render);
  announce(`Updated: ${countWords(data.cells.counts)}.`);
});
performance.mark('report-drawn');
