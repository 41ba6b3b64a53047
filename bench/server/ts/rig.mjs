// What both TypeScript servers share: the command line, the meter and the announcement of internal/rig, and the tools.
import { createServer as createListener } from 'node:net';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import * as z from 'zod';

export const { values: options } = parseArgs({
  // Go's flags have one dash.
  args: process.argv.slice(2).map((a) => a.replace(/^-(?=[a-z])/, '--')),
  options: {
    era: { type: 'string', default: 'modern' },
    tool: { type: 'string', default: 'echo' },
    tools: { type: 'string', default: '0' },
    sse: { type: 'boolean', default: false },
    stdio: { type: 'boolean', default: false },
  },
});

const NOTES = 1000;
const LARGE_SIZE = 1 << 20;
const large = 'the quick brown fox jumps over the lazy dog '.repeat(LARGE_SIZE / 44 + 1).slice(0, LARGE_SIZE);
const text = (value) => ({ content: [{ type: 'text', text: value }] });
const fields = { message: z.string().describe('the text to return') };
const schema = z.object(fields);

// addTools registers the tools of the benchmark. SDKs of v1 take the fields of a schema, those of v2 the schema; notify sends
// one note.
export function addTools(server, { v1, notify }) {
  const add = (name, description, handler) => server.registerTool(name, { description, inputSchema: v1 ? fields : schema }, handler);
  const echo = async ({ message }) => text(message);
  const count = Number(options.tools);
  for (let i = 0; i < count; i++) add(`tool_${String(i).padStart(4, '0')}`, 'Return the message', echo);
  if (count > 0) return;
  const withNotes = (n) => async ({ message }, context) => {
    for (let i = 1; i <= n; i++) await notify(context, i, n);
    return text(message);
  };
  add('echo', 'Return the message', echo);
  add('echo_progress', 'Report progress once, then return the message', withNotes(1));
  add('echo_notes', 'Report progress a thousand times, then return the message', withNotes(NOTES));
  add('count', 'Return the length of the message', async ({ message }) => text(String(message.length)));
  add('large', 'Return a large text', async () => text(large));
}

// note is one progress notification.
export const note = (progressToken, progress, total) => ({ method: 'notifications/progress', params: { progressToken, progress, total } });

const listen = (server) => new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server.address().port)));

function read() {
  const { user, system } = process.cpuUsage();
  return { cpu: (user + system) * 1000, heap: process.memoryUsage().heapUsed };
}

async function serveMeter() {
  const meter = createListener((socket) => {
    socket.on('error', () => socket.destroy());
    createInterface({ input: socket }).on('line', (line) => {
      if (line === 'collect') globalThis.gc?.();
      socket.write(JSON.stringify(read()) + '\n');
    });
  });
  return `127.0.0.1:${await listen(meter)}`;
}

// main serves HTTP with handle(request, response), or standard input with stdio().
export async function main({ handle, stdio }) {
  const meter = await serveMeter();
  let url = '';
  if (!options.stdio) {
    // The load's connections rest while others are measured.
    url = `http://127.0.0.1:${await listen(createServer({ keepAliveTimeout: 0 }, handle))}/mcp`;
  }
  process.stderr.write(JSON.stringify({ url, meter }) + '\n');
  if (options.stdio) {
    process.stdin.on('end', () => process.exit(0));
    await stdio();
  }
}
