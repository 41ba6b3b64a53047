// OpenAuth runs the issuer of @openauthjs/openauth with its storage in memory. The login page accepts any name without a
// password. These are defaults of the issuer: it accepts every client with a redirect URI on the machine, publishes neither a
// registration endpoint nor PKCE methods, ignores scope and resource, issues tokens whose audience is the client, and omits
// token_type in its responses.
//
//   node openauth.mjs
import { issuer } from '@openauthjs/openauth';
import { MemoryStorage } from '@openauthjs/openauth/storage/memory';
import { loginForm, serve } from './serve.mjs';

// The issuer logs requests to standard output. Only the URL may be written there.
console.log = ((log) => (...args) => (String(args[0]).startsWith('http://') ? log(...args) : console.error(...args)))(console.log);

const form = {
  type: 'form',
  init(routes, ctx) {
    routes.get('/authorize', (c) => c.html(loginForm()));
    routes.post('/authorize', async (c) => {
      const fields = await c.req.formData();
      return ctx.forward(c, await ctx.success(c, { name: String(fields.get('username')) }));
    });
  },
};

await serve(() => {
  const app = issuer({
    providers: { form },
    subjects: { user: { '~standard': { version: 1, vendor: 'test', validate: (value) => ({ value }) } } },
    storage: MemoryStorage(),
    success: (ctx, value) => ctx.subject('user', { id: value.name }, { subject: value.name }),
  });
  return (request) => app.fetch(request);
});
