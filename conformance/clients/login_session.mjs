// The official TypeScript SDK of the session era logs in to the server at a URL.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { StreamableHTTPClientTransport, StreamableHTTPError } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { play } from './login.mjs';

const url = new URL(process.argv[2]);
await play({
  attach: (authProvider) => ({
    client: new Client({ name: 'typescript-session', version: '1' }),
    transport: new StreamableHTTPClientTransport(url, { authProvider }),
  }),
  finish: (transport, params) => transport.finishAuth(params.get('code')),
  isUnauthorized: (e) => e instanceof UnauthorizedError,
  isRefused: (e) => e instanceof StreamableHTTPError && e.code === 403,
});
