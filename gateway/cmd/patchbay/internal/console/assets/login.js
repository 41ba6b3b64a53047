// login.js exchanges the token of the URL for a cookie. A fragment reaches no log and no other host.

const form = document.getElementById("login");
const state = document.getElementById("login-state");

async function logIn(token) {
  history.replaceState(null, "", location.pathname + location.search);
  if (state) {
    state.textContent = "Logging in…";
  }
  const body = new URLSearchParams({ token, next: form.elements.next.value });
  const response = await fetch("/login", { method: "POST", body, headers: { "X-Console": "1" } });
  if (response.ok) {
    location.replace((await response.json()).location);
    return;
  }
  if (state) {
    state.className = "notice bad";
    state.textContent = "The link has expired or was used before. Press Enter in the terminal of patchbay console " +
      "to print a new link.";
  }
}

const match = /^#t=([0-9a-f]+)$/.exec(location.hash);
if (match) {
  logIn(match[1]).catch(() => {
    state.textContent = "The console does not respond. Is the command still running?";
  });
} else {
  form.elements.token.focus();
}
