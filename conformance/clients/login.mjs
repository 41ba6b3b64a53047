// What an official client does with a protected server: it registers, logs in, steps up, renews. Every page that a person has
// to visit is printed as a line "visit <url>"; the Go test visits it. The last line is one JSON object of what was seen.
import { createServer } from 'node:http';
import { randomUUID } from 'node:crypto';

// The client's end of the authorization code flow: a callback on a free port, and a provider that keeps all in memory.
export class Login {
  seen = { visits: [], saved: 0 };
  #waiting = [];

  static async start() {
    const login = new Login();
    login.server = createServer((req, res) => {
      const url = new URL(req.url, login.redirectUrl);
      res.end('done');
      if (url.pathname === '/callback') {
        login.#waiting.shift()?.(url.searchParams);
      }
    });
    await new Promise((resolve) => login.server.listen(0, '127.0.0.1', resolve));
    login.redirectUrl = `http://127.0.0.1:${login.server.address().port}/callback`;
    login.arrived = new Promise((resolve) => login.#waiting.push(resolve));
    return login;
  }

  get clientMetadata() {
    return {
      client_name: 'TypeScript client', redirect_uris: [this.redirectUrl], application_type: 'native',
      grant_types: ['authorization_code', 'refresh_token'], response_types: ['code'], token_endpoint_auth_method: 'none',
    };
  }
  state() { this.expected = randomUUID(); return this.expected; }
  clientInformation() { return this.client; }
  saveClientInformation(client) { this.client = client; }
  tokens() { return this.held; }
  saveTokens(tokens) { this.held = tokens; this.seen.saved++; }
  redirectToAuthorization(url) { this.seen.visits.push(url.searchParams.get('scope')); console.log(`visit ${url}`); }
  saveCodeVerifier(verifier) { this.verifier = verifier; }
  codeVerifier() { return this.verifier; }
  saveDiscoveryState(state) { this.discovered = state; }
  discoveryState() { return this.discovered; }

  // answer waits for the browser to come back.
  async answer() {
    const params = await this.arrived;
    this.arrived = new Promise((resolve) => this.#waiting.push(resolve));
    if (params.get('state') !== this.expected) {
      throw new Error('the state is another one');
    }
    return params;
  }
}

// play logs in, calls, steps up and renews. attach gives a client that is connected by a new transport, and finish hands the
// answer of the browser to that transport.
//
// The second argument of the command is the tool that needs another scope, "write" if there is none.
//
// An SDK that renews its token where it should ask for more scopes has isRefused tell when: it then logs in anew.
export async function play({ attach, finish, isUnauthorized, isRefused = () => false }) {
  const login = await Login.start();
  const text = (res) => res.content.map((c) => c.text).join('');
  const deadline = setTimeout(() => { console.error('there was no end'); process.exit(1); }, 25_000);
  let current;
  // Whatever needs an authorization that is not there yet is tried again when it is.
  const authorized = async (what) => {
    for (let visits = 0; ; visits++) {
      try {
        return await what();
      } catch (e) {
        if (visits === 3 || !isUnauthorized(e) && !isRefused(e)) {
          throw e;
        }
        if (isUnauthorized(e)) {
          await finish(current.transport, await login.answer());
        } else {
          delete login.held.refresh_token;
          await connect();
        }
      }
    }
  };
  const connect = () => authorized(async () => {
    current = attach(login);
    await current.client.connect(current.transport);
  });
  const call = (name) => authorized(() => current.client.callTool({ name, arguments: {} }));

  await connect();
  login.seen.issuer = login.discovered?.authorizationServerMetadata?.issuer;
  login.seen.registered = typeof login.client?.client_id === 'string';
  login.seen.tools = (await current.client.listTools()).tools.map((t) => t.name);
  login.seen.who = JSON.parse(text(await call('who_am_i')));
  login.seen.wrote = text(await call(process.argv[3] ?? 'write'));
  login.seen.stepped = JSON.parse(text(await call('who_am_i')));

  // A token that the server does not know any more: the client renews it without anybody's help.
  const before = login.held;
  login.held = { ...before, access_token: `${before.access_token}x` };
  login.seen.renewed = JSON.parse(text(await call('who_am_i')));
  login.seen.rotated = login.held.access_token !== before.access_token && login.held.refresh_token !== before.refresh_token;

  await current.client.close();
  login.server.close();
  clearTimeout(deadline);
  console.log(JSON.stringify(login.seen));
  process.exit(0);
}
