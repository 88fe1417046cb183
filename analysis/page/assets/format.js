// Numbers for people; tables come ready from the analysis.
const SUPERSCRIPT = { '-': '\u207b', 0: '\u2070', 1: '\u00b9', 2: '\u00b2', 3: '\u00b3', 4: '\u2074',
  5: '\u2075', 6: '\u2076', 7: '\u2077', 8: '\u2078', 9: '\u2079' };

function power(exponent) {
  return '10' + [...String(exponent)].map((sign) => SUPERSCRIPT[sign]).join('');
}

// 3 significant digits, 6.73 x 10^-10 below a thousandth and from ten thousand on.
function brief(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '-';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e4) return String(Number(value.toPrecision(digits)));
  const [mantissa, exponent] = value.toExponential(digits - 1).split('e');
  const front = String(Number(mantissa));
  return front === '1' ? power(Number(exponent)) : `${front}\u00d7${power(Number(exponent))}`;
}

// A multiplier, as the tables write it: 1.24.
function times(value) {
  return value !== null && value >= 0.01 && value < 1e4 ? value.toFixed(2) : brief(value);
}

function whole(value) {
  return Math.round(value).toLocaleString('en');
}

function signed(value, digits = 3) {
  return (value > 0 ? '+' : '') + brief(value, digits);
}
