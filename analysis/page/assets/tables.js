// Tables as the analysis wrote them; an interval is set apart from its value, not changed.
const WITH_INTERVAL = /^([-+]?(?:\d\S*|inf\S*)) (\[\S+, \S+\](?: \S+)?)$/;
const NUMERIC = /^(?:-|[-+]?\d[\d.,e+-]*[x%]?|[-+]?\d\S* \[.*\]|(?:\d+\.\d+ ?)+|\d+\/\d+|\d\S* to \d\S*)?$/;

function content(text) {
  const parts = WITH_INTERVAL.exec(text);
  return parts ? [parts[1], ' ', el('span', { class: 'interval' }, parts[2])] : [text];
}

function tableOf(t) {
  const numeric = t.columns.map((_, c) => c > 0 && t.rows.every((row) => NUMERIC.test(row[c])));
  const side = (c) => (numeric[c] ? 'number' : 'text');
  const label = `${t.id}-caption`;
  const made = el('table', { id: t.id },
    el('caption', { id: label }, t.caption),
    el('thead', {}, el('tr', {}, t.columns.map((name, c) => el('th', { scope: 'col', class: side(c) }, name)))),
    el('tbody', {}, t.rows.map((row) => el('tr', {}, row.map((text, c) => (c === 0
      ? el('th', { scope: 'row' }, text) : el('td', { class: side(c) }, content(text))))))));
  const long = t.rows.length > 24 ? ' long' : t.rows.length < 9 ? ' short' : '';
  return el('div', { class: 'table' },
    t.rows.length ? el('div', { class: `scroll${long}`, 'data-label': label }, made) : el('h3', {}, t.caption),
    t.claims.map((words) => el('p', { class: 'claim' }, words)),
    t.notes.map((words) => el('p', { class: 'note' }, words)));
}

// Boxes that scroll can be reached by keyboard; those that do not, are no stop on the way.
function markScrollable() {
  for (const box of document.querySelectorAll('.scroll')) {
    const scrolls = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
    const more = () => box.classList.toggle('more', box.scrollWidth - box.scrollLeft > box.clientWidth + 1);
    box.onscroll = more;
    more();
    for (const [name, value] of [['tabindex', '0'], ['role', 'region'], ['aria-labelledby', box.dataset.label]]) {
      if (scrolls) box.setAttribute(name, value); else box.removeAttribute(name);
    }
  }
}

// The values of a figure, built when they are asked for; a redrawn figure keeps them open.
const opened = new Set();
function valuesOf(id, caption, columns, rows, summary = 'Values as a table') {
  const host = el('div');
  const made = el('details', {
    id: `${id}-details`, open: opened.has(id) ? '' : null,
    ontoggle: () => {
      opened[made.open ? 'add' : 'delete'](id);
      if (!made.open || host.firstChild) return;
      host.append(tableOf({ id: `${id}-values`, caption, columns, rows: rows(), claims: [], notes: [] }));
      markScrollable();
    },
  }, el('summary', { id: `${id}-summary` }, summary), host);
  return made;
}
