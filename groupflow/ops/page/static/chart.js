// Line charts of the last minutes or hours: drawn to the pixel, read by eye, by pointer, by arrow keys, by ear. And bars.

import { h, replace, s } from "./dom.js";
import { duration, now, time } from "./format.js";

const LEFT = 46;
const RIGHT = 6;
const TOP = 8;
const BOTTOM = 20;
const NARROW = 380; // pixels, below which labels would meet
const STEP = 10; // seconds between two samples
const GAP = 4.5; // steps without a sample that break a line
const HOUR = { seconds: 3600, part: 900 };

// Series: { name, tone, pick(sample), area, dashed }. Options: show(value), mark, log; range { seconds, part: seconds
// between two labels, step: seconds between two samples }.
export function chart(label, series, { show, mark = "", log = false, range = HOUR }) {
  const legend = h("div", { class: "legend" });
  const plot = h("div", { class: "plot", tabindex: "0", role: "img", "data-key": `chart ${label}` });
  const element = h("div", {}, legend, h("div", { class: "chart" }, plot));
  let samples = [];
  let chosen = null;

  function tell() {
    const sample = chosen === null ? samples.at(-1) : samples[chosen];
    const values = series.map((each) => {
      const value = sample ? each.pick(sample) : null;
      return h("span", { class: `key s-${each.tone}${each.dashed ? " dashed" : ""}` }, `${each.name} `, h("b", {}, value === null ? "–" : `${mark}${show(value)}`));
    });
    replace(legend, values);
    const said = values.map((each) => each.textContent).join(", ");
    plot.setAttribute("aria-label", `${label}, ${chosen === null ? "latest" : time(sample.at)}: ${said}`);
  }

  function draw() {
    const width = plot.clientWidth;
    const height = plot.clientHeight;
    if (!width) return;
    const scale = scaleOf(samples, series, { log, height });
    const end = now();
    const x = (at) => LEFT + (1 - (end - at) / range.seconds) * (width - LEFT - RIGHT);
    const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    for (const tick of scale.ticks) {
      svg.append(
        s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: scale.y(tick), y2: scale.y(tick) }),
        s("text", { x: LEFT - 8, y: scale.y(tick) + 4, "text-anchor": "end" }, show(tick)),
      );
    }
    const apart = width < NARROW && range.seconds > 3 * range.part ? 2 * range.part : range.part;
    for (let before = range.seconds; before >= 0; before -= apart) {
      const anchor = before === range.seconds ? "start" : before === 0 ? "end" : "middle";
      const text = before ? `−${duration(before)}` : "now";
      svg.append(s("text", { x: x(end - before), y: height - 4, "text-anchor": anchor }, text));
    }
    const gap = GAP * (range.step ?? STEP);
    for (const each of series) drawSeries(svg, each, samples, { x, gap, ...scale });
    if (chosen !== null && samples[chosen]) {
      const at = x(samples[chosen].at);
      const anchor = at > width / 2 ? "end" : "start"; // in the plot: nothing moves
      svg.append(s("line", { class: "cross", x1: at, x2: at, y1: TOP, y2: height - BOTTOM }));
      svg.append(s("text", { x: at + (anchor === "end" ? -6 : 6), y: TOP + 14, "text-anchor": anchor }, time(samples[chosen].at)));
      for (const each of series) {
        const value = each.pick(samples[chosen]);
        if (value !== null) svg.append(s("circle", { class: `point s-${each.tone}`, cx: at, cy: scale.y(value), r: 3.5 }));
      }
    }
    plot.replaceChildren(svg);
    if (samples.length < 2) plot.append(h("p", { class: "muted small waiting" }, "Samples come every 10 s."));
    tell();
  }

  function choose(index) {
    chosen = index;
    draw();
  }

  plot.addEventListener("pointermove", (event) => {
    if (!samples.length) return;
    const box = plot.getBoundingClientRect();
    const share = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
    const at = now() - (1 - share) * range.seconds;
    let best = 0;
    samples.forEach((sample, index) => {
      if (Math.abs(sample.at - at) < Math.abs(samples[best].at - at)) best = index;
    });
    choose(best);
  });
  plot.addEventListener("pointerleave", () => choose(null));
  plot.addEventListener("blur", () => choose(null));
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !samples.length) return;
    event.preventDefault();
    const from = chosen ?? samples.length - 1;
    choose(Math.min(samples.length - 1, Math.max(0, from + step)));
  });
  new ResizeObserver(draw).observe(plot);
  return {
    element,
    update(found) {
      if (chosen !== null) return; // the user is reading it
      samples = found.filter((sample) => sample.at > now() - range.seconds);
      draw();
    },
  };
}

// Bars, one a step: layers of { tone, values } on each other, of up to 72 steps; `told(place)` says what one is of.
export function bars(label, layers, { told, tall = false }) {
  const number = layers[0].values.length;
  const sums = layers[0].values.map((_, place) => layers.reduce((sum, { values }) => sum + values[place], 0));
  const top = Math.max(...sums, 1);
  const svg = s("svg", { class: tall ? "bars tall" : "bars", viewBox: `0 0 ${number * 4} 100`, preserveAspectRatio: "none", role: "img", "aria-label": label });
  sums.forEach((sum, place) => {
    if (!sum) return;
    let y = 100;
    const bar = s("g", {}, s("title", {}, told(place)));
    for (const { tone, values } of layers) {
      if (!values[place]) continue;
      const height = Math.max(3, (100 * values[place]) / top); // what is there is seen
      y -= height;
      bar.append(s("rect", { class: `s-${tone}`, x: place * 4 + 0.4, width: 3.2, y: Math.max(0, y), height }));
    }
    svg.append(bar);
  });
  return svg;
}

function drawSeries(svg, each, samples, { x, y, y0, gap }) {
  let line = "";
  let before = null;
  let start = null;
  const close = () => {
    if (each.area && start !== null) {
      const path = `${line.slice(line.lastIndexOf("M"))} L${before.x} ${y0} L${start} ${y0} Z`;
      svg.append(s("path", { class: `area s-${each.tone}`, d: path }));
    }
  };
  for (const sample of samples) {
    const value = each.pick(sample);
    if (value === null) continue;
    const point = { at: sample.at, x: x(sample.at).toFixed(1), y: y(value).toFixed(1) };
    const joins = before !== null && point.at - before.at < gap;
    if (!joins) {
      close();
      start = point.x;
    }
    line += `${joins ? " L" : " M"}${point.x} ${point.y}`;
    if (!joins && sample === samples.at(-1)) svg.append(s("circle", { class: `point s-${each.tone}`, cx: point.x, cy: point.y, r: 2 }));
    before = point;
  }
  close();
  if (line) svg.append(s("path", { class: `line s-${each.tone}${each.dashed ? " dashed" : ""}`, d: line }));
}

function scaleOf(samples, series, { log, height }) {
  const values = samples.flatMap((sample) => series.map((each) => each.pick(sample))).filter((value) => value !== null);
  const y0 = height - BOTTOM;
  const tall = y0 - TOP;
  if (log) {
    const low = Math.floor(Math.log10(Math.max(0.001, Math.min(...values, 0.01))));
    const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...values, 0.1))));
    const step = Math.ceil((high - low) / 4);
    const ticks = [];
    for (let power = low; power <= high; power += step) ticks.push(10 ** power);
    const y = (value) => y0 - ((Math.log10(Math.max(value, 10 ** low)) - low) / (high - low)) * tall;
    return { y, y0, ticks };
  }
  const most = Math.max(...values, 0);
  const step = nice((most || 1) / 3);
  const top = Math.max(step, Math.ceil(most / step) * step);
  const ticks = [];
  for (let tick = 0; tick <= top + step / 2; tick += step) ticks.push(tick);
  return { y: (value) => y0 - (value / top) * tall, y0, ticks };
}

function nice(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  const digit = [1, 2, 5, 10].find((each) => each * power >= rough);
  return digit * power;
}
