// Numbers and times as people read them. Times are Redis's, told with each answer, so that ages are
// right even where this machine's clock is wrong.

const whole = new Intl.NumberFormat("en-US");
const hundredths = new Intl.NumberFormat("en-US", { maximumFractionDigits: 2 });

let told = Date.now() / 1000;
let heard = performance.now();

export function setNow(seconds) {
  told = seconds;
  heard = performance.now();
}

export const now = () => told + (performance.now() - heard) / 1000;

export const count = (number) => whole.format(number);
export const figure = (number) => hundredths.format(number);

export function rate(number) {
  if (number === null || number === undefined) return "–";
  if (number === 0) return "0/s";
  if (number < 0.1) {
    const [times, unit] = number * 60 < 1 ? [3600, "h"] : [60, "min"];
    return `${figure(Number((number * times).toPrecision(2)))}/${unit}`;
  }
  return number < 10 ? `${number.toFixed(number < 1 ? 2 : 1)}/s` : `${whole.format(Math.round(number))}/s`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const left = Math.max(0, seconds);
  if (left > 0 && left < 0.0005) return "<1 ms";
  if (left < 0.0995) return `${Math.round(left * 1000)} ms`;
  if (left < 9.95) return `${left.toFixed(1)} s`;
  if (left < 90) return `${Math.round(left)} s`;
  if (left < 5400) return `${Math.round(left / 60)} min`;
  if (left < 129600) return `${(left / 3600).toFixed(left < 36000 && left % 3600 ? 1 : 0)} h`;
  return `${Math.round(left / 86400)} days`;
}

// Of what is counted in buckets, in two digits.
export const about = (seconds) => (seconds === null ? "–" : `≈ ${seconds < 1 ? `${Math.round(seconds * 1000)} ms` : duration(seconds)}`);

// "90 s", "10 min", "3 h", "2 days" as seconds; null where it is none of these.
export function seconds(text) {
  const found = /^\s*(\d+(?:\.\d+)?)\s*(s|sec|m|min|h|d|days?|)\s*$/.exec(text);
  if (!found) return null;
  const unit = { s: 1, sec: 1, "": 1, m: 60, min: 60, h: 3600 }[found[2]] ?? 86400;
  return Number(found[1]) * unit;
}

export const ago = (seconds) => `${duration(now() - seconds)} ago`;
export const ahead = (seconds) => (seconds > now() ? `in ${duration(seconds - now())}` : "due now");

// As the command line and the log have it, in UTC; `time` leaves today's date out.
const iso = (seconds) => new Date(seconds * 1000).toISOString();
export const moment = (seconds) => `${iso(seconds).slice(0, 10)} ${iso(seconds).slice(11, 19)} UTC`;
export const time = (seconds) => (iso(seconds).slice(0, 10) === iso(now()).slice(0, 10) ? moment(seconds).slice(11) : moment(seconds));

export function bytes(number) {
  if (number < 1024) return `${number} bytes`;
  if (number < 1048576) return `${(number / 1024).toFixed(1)} KiB`;
  return `${(number / 1048576).toFixed(1)} MiB`;
}
