// Reads messages, one per line, with a server of the official TypeScript SDK, and writes how its handlers understand each
// message: the method, the name or URI, and the arguments, or null if the SDK refuses the message.
import { createInterface } from 'node:readline';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { deserializeMessage } from '@modelcontextprotocol/sdk/shared/stdio.js';
import {
  CallToolRequestSchema, CompleteRequestSchema, GetPromptRequestSchema, ReadResourceRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';

const server = new Server({ name: 'typescript', version: '1' }, { capabilities: { tools: {}, prompts: {}, resources: {}, completions: {} } });
let understood;
const handle = (schema, target, args) => server.setRequestHandler(schema, (request) => {
  understood = { method: request.method, target: target(request.params), arguments: args(request.params) };
  throw new Error('seen');
});
handle(CallToolRequestSchema, (p) => p.name, (p) => p.arguments);
handle(GetPromptRequestSchema, (p) => p.name, (p) => p.arguments);
handle(ReadResourceRequestSchema, (p) => p.uri, () => undefined);
handle(CompleteRequestSchema, (p) => p.ref.name, (p) => p.argument);

let answered;
const transport = { start: async () => {}, close: async () => {}, send: async () => answered() };
await server.connect(transport);
// JSON cannot represent infinite numbers.
const finite = (_, value) => (typeof value === 'number' && !Number.isFinite(value) ? `${value > 0 ? '+' : '-'}Inf` : value);
for await (const line of createInterface({ input: process.stdin })) {
  understood = null;
  const answer = new Promise((resolve) => { answered = resolve; });
  try {
    transport.onmessage(deserializeMessage(line));
    await answer;
  } catch {
    understood = null;
  }
  console.log(JSON.stringify(understood, finite));
}
