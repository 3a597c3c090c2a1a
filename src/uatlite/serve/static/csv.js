// CSV and TSV as RFC 4180 has them: quotes, doubled quotes, line breaks inside quotes.

export function parse(text, delimiter) {
  const rows = [];
  let row = [];
  let field = "";
  let quoted = false;
  const source = text.replace(/^\uFEFF/, "");
  for (let i = 0; i < source.length; i += 1) {
    const character = source[i];
    if (quoted) {
      if (character !== '"') field += character;
      else if (source[i + 1] === '"') field += source[(i += 1)];
      else quoted = false;
    } else if (character === '"' && field === "") quoted = true;
    else if (character === delimiter) field = push(row, field);
    else if (character === "\n" || character === "\r") {
      if (character === "\r" && source[i + 1] === "\n") i += 1;
      field = push(row, field);
      rows.push(row);
      row = [];
    } else field += character;
  }
  if (field !== "" || row.length) {
    push(row, field);
    rows.push(row);
  }
  return rows.filter((fields) => fields.length > 1 || fields[0] !== "");
}

function push(row, field) {
  row.push(field);
  return "";
}

// The delimiter that the header has most of.
export function delimiterOf(text) {
  const header = text.slice(0, text.search(/[\r\n]|$/));
  const count = (mark) => header.split(mark).length;
  return [",", "\t", ";"].reduce((best, mark) => (count(mark) > count(best) ? mark : best));
}

export function format(rows) {
  const quote = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(quote).join(",")).join("\r\n") + "\r\n";
}
