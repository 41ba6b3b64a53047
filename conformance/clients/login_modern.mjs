// The official TypeScript client of 2026-07-28 logs in to the server at a URL.
import { Client, StreamableHTTPClientTransport, UnauthorizedError } from '@modelcontextprotocol/client';
import { play } from './login.mjs';

const url = new URL(process.argv[2]);
await play({
  attach: (authProvider) => ({
    client: new Client({ name: 'typescript-modern', version: '1' }, { versionNegotiation: { mode: 'auto' } }),
    transport: new StreamableHTTPClientTransport(url, { authProvider }),
  }),
  finish: (transport, params) => transport.finishAuth(params),
  isUnauthorized: (e) => e instanceof UnauthorizedError,
});
