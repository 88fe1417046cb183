// Elements. Text goes in as text nodes only, so that no name can become markup.
const $ = (id) => document.getElementById(id);

function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined).map(straight));
  return node;
}

// Signs that turn the direction of writing would turn the numbers after them as well.
function straight(child) {
  return typeof child === 'string' ? child.replace(/[\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, '\ufffd') : child;
}

// How wide a drawing is. Paper is laid out only after the drawing: its width is known, in pixels.
let onPaper = false;
function widthOf(host, least) {
  if (onPaper) return host.closest('.panels') ? 320 : 660;
  return Math.max(host.clientWidth || 640, least);
}

function announce(text) {
  $('announce').textContent = text;
}

// A button that is on or off.
function toggle(id, label, on, change) {
  return el('button', { type: 'button', id, 'aria-pressed': String(on), onclick: () => change(!on) }, label);
}

// A labelled list of [value, words].
function choice(id, label, options, value, change) {
  const list = el('select', { id, onchange: (event) => change(event.target.value) },
    options.map(([key, words]) => el('option', { value: key, selected: key === value ? '' : null }, words)));
  return el('label', {}, label, list);
}

// Redraws a part of the page; the keyboard stays where it was.
function keepingFocus(draw) {
  const held = document.activeElement && document.activeElement.id;
  draw();
  const again = held && document.activeElement.id !== held && $(held);
  if (again) again.focus({ preventScroll: true });
}
