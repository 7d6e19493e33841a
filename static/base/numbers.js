/* Numbers and durations in the words of lab/lib/numbers.py and lab/lib/timeago.py. */

export function formatNumber(value) {
  if (typeof value !== "number") return "–";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1000) return String(value);
  if (size >= 1000) return formatCompact(value);
  if (size < 0.001) return value.toExponential(1);
  return value.toFixed(Math.min(3, Math.max(0, 2 - Math.floor(Math.log10(size)))));
}

export function formatCompact(value) {
  for (const [size, suffix] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= size * 0.9995) {
      const scaled = value / size;
      return (Math.abs(scaled) < 9.95 ? scaled.toFixed(1) : scaled.toFixed(0)) + suffix;
    }
  }
  return value.toFixed(0);
}

export function formatDuration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return minutes < 5 && whole % 60 ? `${minutes} min ${whole % 60} s` : `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  const days = Math.floor(hours / 24);
  return days < 7 && hours % 24 ? `${days} d ${hours % 24} h` : `${days} d`;
}
