// Cloudflare runs the authorization server of @cloudflare/workers-oauth-provider for the resource in the argument, with a
// map instead of its key-value namespace. The login page accepts any name without a password. Tokens are opaque; instead of
// a service binding, the server supports token introspection (RFC 7662) at POST /introspect.
//
//   node cloudflare.mjs http://127.0.0.1:8080/mcp
import { registerHooks } from 'node:module';
import { loginForm, serve } from './serve.mjs';

// The module that the runtime of workers provides.
registerHooks({
  resolve: (name, context, next) =>
    name === 'cloudflare:workers' ? { url: 'data:text/javascript,export class WorkerEntrypoint {}', shortCircuit: true } : next(name, context),
});
const { OAuthAuthorizationServer } = await import('@cloudflare/workers-oauth-provider');

// A Namespace is a key-value namespace without expiry.
class Namespace extends Map {
  async get(key, options) {
    const value = super.get(key) ?? null;
    return value !== null && (options === 'json' || options?.type === 'json') ? JSON.parse(value) : value;
  }
  async put(key, value) {
    super.set(key, value);
  }
  async delete(key) {
    super.delete(key);
  }
  async list({ prefix = '' } = {}) {
    return { keys: [...super.keys()].filter((k) => k.startsWith(prefix)).map((name) => ({ name })), list_complete: true };
  }
}

const resource = process.argv[2];
await serve((origin) => {
  const env = { OAUTH_KV: new Namespace() };
  const ctx = { waitUntil: (promise) => promise.catch(console.error), passThroughOnException() {}, props: {} };
  const server = new OAuthAuthorizationServer({
    issuer: origin,
    resources: [resource],
    scopesSupported: ['mcp:read', 'mcp:write', 'offline_access'],
    clientRegistrationEndpoint: '/oauth/register',
  });

  async function authorize(request) {
    const oauth = server.getOAuthApi(env);
    if (request.method === 'GET') {
      const consent = await oauth.beginConsent(await oauth.parseAuthRequest(request));
      consent.headers.set('Content-Type', 'text/html; charset=utf-8');
      return new Response(loginForm(`<input type="hidden" name="handle" value="${consent.handle}">`), { headers: consent.headers });
    }
    const fields = await request.formData();
    const approved = await oauth.approveConsent(request, String(fields.get('handle')));
    const userId = String(fields.get('username'));
    const { redirectTo } = await oauth.completeAuthorization({
      request: approved.request, userId, metadata: {}, scope: approved.request.scope, props: { userId },
    });
    approved.headers.set('Location', redirectTo);
    return new Response(null, { status: 302, headers: approved.headers });
  }

  // introspect is the introspection endpoint.
  async function introspect(request) {
    const fields = await request.formData();
    const token = await server.validateToken(resource, String(fields.get('token')), env);
    return Response.json(!token ? { active: false } : {
      active: true, iss: origin, sub: token.userId, client_id: token.clientId, aud: resource,
      scope: token.scope.join(' '), exp: token.expiresAt,
    });
  }

  return (request) => {
    switch (new URL(request.url).pathname) {
      case '/authorize':
        return authorize(request);
      case '/introspect':
        return introspect(request);
    }
    return server.fetch(request, env, ctx);
  };
});
