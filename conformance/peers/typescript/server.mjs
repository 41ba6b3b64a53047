// A server that the official TypeScript SDK protects, with the authorization server that the SDK brings: mcpAuthRouter with
// its demo provider, which allows everything at once and to which renewal is added. The first line is the URL of the server.
//
// POST /test/forget makes every access token unknown.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createMcpExpressApp } from '@modelcontextprotocol/sdk/server/express.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { getOAuthProtectedResourceMetadataUrl, mcpAuthRouter } from '@modelcontextprotocol/sdk/server/auth/router.js';
import { requireBearerAuth } from '@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js';
import { InvalidGrantError, InvalidTokenError } from '@modelcontextprotocol/sdk/server/auth/errors.js';
import { DemoInMemoryAuthProvider } from '@modelcontextprotocol/sdk/examples/server/demoInMemoryOAuthProvider.js';

const app = createMcpExpressApp();
const server = createServer(app);
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const base = new URL(`http://127.0.0.1:${server.address().port}`);
const endpoint = new URL('/mcp', base);

class AuthProvider extends DemoInMemoryAuthProvider {
  renewals = new Map();

  #withRefresh(tokens, client, scopes, resource) {
    const refresh_token = randomUUID();
    this.renewals.set(refresh_token, { client: client.client_id, scopes, resource });
    return { ...tokens, refresh_token };
  }

  async exchangeAuthorizationCode(client, code, verifier) {
    const { params } = this.codes.get(code) ?? { params: {} };
    return this.#withRefresh(await super.exchangeAuthorizationCode(client, code, verifier), client, params.scopes ?? [], params.resource);
  }

  async exchangeRefreshToken(client, refreshToken, scopes, resource) {
    const held = this.renewals.get(refreshToken);
    this.renewals.delete(refreshToken);
    if (held?.client !== client.client_id || String(held.resource) !== String(resource)) {
      throw new InvalidGrantError('unknown refresh token, or of another client or resource');
    }
    const token = randomUUID();
    const granted = scopes?.length ? scopes : held.scopes;
    this.tokens.set(token, { token, clientId: client.client_id, scopes: granted, expiresAt: Date.now() + 3600_000, resource });
    return this.#withRefresh({ access_token: token, token_type: 'bearer', expires_in: 3600, scope: granted.join(' ') }, client, granted, resource);
  }

  async verifyAccessToken(token) {
    return super.verifyAccessToken(token).catch((e) => { throw new InvalidTokenError(e.message); });
  }

  async revokeToken(_client, { token }) {
    this.tokens.delete(token);
    this.renewals.delete(token);
  }
}

const provider = new AuthProvider((resource) => resource?.href === endpoint.href);
app.use(mcpAuthRouter({ provider, issuerUrl: base, resourceServerUrl: endpoint, scopesSupported: ['mcp:read', 'mcp:write'] }));
app.post('/test/forget', (_req, res) => {
  provider.tokens.clear();
  res.json({});
});

const needs = (...requiredScopes) => requireBearerAuth({
  verifier: provider, requiredScopes, expectedResource: endpoint,
  resourceMetadataUrl: getOAuthProtectedResourceMetadataUrl(endpoint),
});
const writes = (req) => req.body?.method === 'tools/call' && req.body.params?.name === 'write';
const readers = needs('mcp:read');
const writers = needs('mcp:read', 'mcp:write');
app.use('/mcp', (req, res, next) => (writes(req) ? writers : readers)(req, res, next));

function newServer() {
  const s = new McpServer({ name: 'typescript-protected', version: '1.0.0' });
  const text = (value) => ({ content: [{ type: 'text', text: value }] });
  s.registerTool('who_am_i', { description: 'Tells who calls.' }, (extra) => text(JSON.stringify({ scopes: extra.authInfo.scopes })));
  s.registerTool('write', { description: 'Needs mcp:write.' }, () => text('written'));
  return s;
}

const sessions = new Map();
app.all('/mcp', async (req, res) => {
  let transport = sessions.get(req.headers['mcp-session-id']);
  if (!transport) {
    if (req.headers['mcp-session-id']) {
      res.status(404).json({ jsonrpc: '2.0', error: { code: -32001, message: 'Session not found' }, id: null });
      return;
    }
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => sessions.set(id, transport),
    });
    await newServer().connect(transport);
  }
  await transport.handleRequest(req, res, req.body);
});

console.log(endpoint.href);
process.on('SIGTERM', () => process.exit(0));
