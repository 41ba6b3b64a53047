// The official TypeScript client of 2026-07-28, which finds the era by itself.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { answers, main } from './exercise.mjs';

const transports = {
  http: ([url]) => new StreamableHTTPClientTransport(new URL(url)),
  stdio: ([command, ...args]) => new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' }),
};

await main(async (kind, target) => {
  const client = new Client({ name: 'typescript-modern', version: '1' },
    { capabilities: { elicitation: {}, sampling: {}, roots: {} }, versionNegotiation: { mode: 'auto' } });
  client.setRequestHandler('elicitation/create', async (r) => answers.elicit(r.params));
  client.setRequestHandler('sampling/createMessage', async () => answers.sample());
  let updated = () => {};
  client.setNotificationHandler('notifications/resources/updated', (n) => updated(n.params.uri));
  client.progressArgs = (onprogress) => [{ onprogress }];
  client.watch = (uri) => client.listen({ resourceSubscriptions: [uri] });
  await client.connect(transports[kind](target));
  return { client, onUpdate: (f) => { updated = f; }, close: () => client.close() };
});
