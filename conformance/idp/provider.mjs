// An OpenID provider for the tests: panva's certified oidc-provider, with a login and a consent page of its own. The first
// line of its output is its issuer. Whoever logs in is the account of that name, whatever the password.
//
//   node idp/provider.mjs '{"clients": [...], "alwaysRefresh": true, "groups": {"ann": [...]}}'
//
// POST /test/revoke takes back what every client was granted, as a user does who removes an app from an account. GET
// /test/events lists what has happened.
import { createServer } from 'node:http';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { Provider, errors } from 'oidc-provider';

const options = JSON.parse(process.argv[2] ?? '{}');

const server = createServer();
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
// Another site than 127.0.0.1, where the authorization servers of the tests are: cookies are held to their site.
const issuer = `http://localhost:${server.address().port}`;

function signingKey(type, details, alg) {
  const { privateKey } = generateKeyPairSync(type, details);
  return { ...privateKey.export({ format: 'jwk' }), use: 'sig', alg, kid: alg };
}

const provider = new Provider(issuer, {
  clients: options.clients ?? [],
  cookies: { keys: [randomBytes(32).toString('hex')] },
  jwks: { keys: [signingKey('rsa', { modulusLength: 2048 }, 'RS256'), signingKey('ec', { namedCurve: 'P-256' }, 'ES256')] },
  findAccount: (_ctx, id) => ({
    accountId: id,
    claims: () => ({
      sub: id, name: `${id} Example`, email: `${id}@example.com`, email_verified: true, groups: options.groups?.[id],
    }),
  }),
  claims: { openid: options.groups ? ['sub', 'groups'] : ['sub'], profile: ['name'], email: ['email', 'email_verified'] },
  conformIdTokenClaims: !options.groups, // without it, claims of the scope openid are in ID tokens too
  scopes: ['openid', 'offline_access', 'profile', 'email', 'mcp:read', 'mcp:write'],
  pkce: { required: () => true },
  // OpenID Connect ties refresh tokens to the scope offline_access and to a consent. With alwaysRefresh they come without.
  ...(options.alwaysRefresh && { issueRefreshToken: (_ctx, client) => client.grantTypeAllowed('refresh_token') }),
  ttl: {
    AccessToken: 600, ClientCredentials: 600, AuthorizationCode: 60, IdToken: 600,
    RefreshToken: 3600, Interaction: 600, Session: 3600, Grant: 3600,
  },
  features: {
    devInteractions: { enabled: true },
    revocation: { enabled: true },
    introspection: { enabled: true },
    registration: { enabled: true },
    clientCredentials: { enabled: true },
    // Without a resource a token is opaque and for the userinfo endpoint; with one it is a JWT for that audience.
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (_ctx, resource) => {
        if (!resource.startsWith('http://127.0.0.1:')) {
          throw new errors.InvalidTarget();
        }
        return {
          scope: 'mcp:read mcp:write', audience: resource, accessTokenFormat: 'jwt', accessTokenTTL: 600,
          jwt: { sign: { alg: 'ES256' } },
        };
      },
    },
  },
  renderError: (ctx, out) => {
    ctx.type = 'text';
    ctx.body = Object.entries(out).map(([name, value]) => `${name}: ${value}\n`).join('');
  },
});

const granted = new Set();
provider.on('grant.success', (ctx) => {
  if (ctx.oidc.entities.Grant) {
    granted.add(ctx.oidc.entities.Grant.jti);
  }
});

// What happened, for the tests to look at.
const events = [];
for (const name of ['grant.success', 'grant.error', 'authorization.success', 'authorization.error', 'revocation.error', 'userinfo.error', 'server_error']) {
  provider.on(name, (...args) => {
    const failed = args.find((a) => a instanceof Error);
    const ctx = args.find((a) => a?.oidc);
    const text = `${name} ${ctx?.oidc?.params?.grant_type ?? ''} ${failed ? `${failed.message}: ${failed.error_description ?? ''} ${failed.error_detail ?? ''}` : ''}`;
    events.push(text.trim());
    console.error('provider:', text.trim());
  });
}
provider.on('access_token.destroyed', () => events.push('access_token.destroyed'));
provider.on('refresh_token.destroyed', () => events.push('refresh_token.destroyed'));
provider.on('grant.revoked', () => events.push('grant.revoked'));

provider.use(async (ctx, next) => {
  if (ctx.path === '/test/events') {
    ctx.body = events;
    return;
  }
  if (ctx.method !== 'POST' || ctx.path !== '/test/revoke') {
    await next();
    return;
  }
  for (const id of granted) {
    const grant = await provider.Grant.find(id);
    for (const model of [provider.AccessToken, provider.RefreshToken, provider.AuthorizationCode]) {
      await model.revokeByGrantId(id);
    }
    await grant?.destroy();
  }
  ctx.body = { revoked: granted.size };
  granted.clear();
});

server.on('request', provider.callback());
console.log(issuer);
process.on('SIGTERM', () => process.exit(0));
