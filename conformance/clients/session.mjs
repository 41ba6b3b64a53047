// The official TypeScript SDK of the session era.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import {
  CreateMessageRequestSchema, ElicitRequestSchema, ResourceUpdatedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { answers, main } from './exercise.mjs';

const transports = {
  http: ([url]) => new StreamableHTTPClientTransport(new URL(url)),
  sse: ([url]) => new SSEClientTransport(new URL(url)),
  stdio: ([command, ...args]) => new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' }),
};

await main(async (kind, target) => {
  const client = new Client({ name: 'typescript-session', version: '1' },
    { capabilities: { elicitation: {}, sampling: {}, roots: {} } });
  client.setRequestHandler(ElicitRequestSchema, async (r) => answers.elicit(r.params));
  client.setRequestHandler(CreateMessageRequestSchema, async () => answers.sample());
  let updated = () => {};
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, (n) => updated(n.params.uri));
  client.progressArgs = (onprogress) => [undefined, { onprogress }];
  client.watch = (uri) => client.subscribeResource({ uri });
  await client.connect(transports[kind](target));
  return { client, onUpdate: (f) => { updated = f; }, close: () => client.close() };
});
