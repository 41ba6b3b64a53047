package auth

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/login"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/vault"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// serverPrefix begins the keys of the servers in a store of oauthclient. Their URL follows.
const serverPrefix = "server "

func newCmdStatus(f *cmdutil.Factory) *cobra.Command {
	o := &cmdutil.Invocation{}
	cmd := cmdutil.AuthCommand(f, "status", "Show the login at a server, or all logins", o, statusOrLogins)
	cmd.Use = "status [TARGET]"
	return cmdutil.OptionalTarget(cmd, o, statusOrLogins)
}

func statusOrLogins(ctx context.Context, o *cmdutil.Invocation) error {
	if o.Target == nil {
		return listLogins(ctx, o.Factory)
	}
	return status(ctx, o.Factory, o.Target)
}

// listLogins prints all logins of the vault. The error is that of values that cannot be read.
func listLogins(ctx context.Context, f *cmdutil.Factory) error {
	v, err := f.Vault.Open()
	if err != nil {
		return err
	}
	d, err := v.Describe()
	if err != nil {
		return err
	}
	keys, problem := v.Keys(ctx)
	reports := []*LoginReport{}
	for _, key := range keys {
		if !strings.HasPrefix(key, serverPrefix) {
			continue
		}
		r, err := storedLogin(ctx, v, key)
		if problem = errors.Join(problem, err); r != nil {
			reports = append(reports, r)
		}
	}
	slices.SortFunc(reports, func(a, b *LoginReport) int { return cmp.Compare(a.Server, b.Server) })
	if login.IsMachineClient() {
		f.IO.Err.Printf("patchbay: %s is set: commands use that client, not the logins.", login.EnvClientID)
	}
	if f.Flags.JSON {
		f.IO.Out.Value(map[string]any{"logins": reports, "storage": d})
		return problem
	}
	for _, r := range reports {
		showLoginOf(f, r)
	}
	if len(reports) == 0 && problem == nil {
		f.IO.Err.Printf("Not logged in to any server.")
	}
	return problem
}

// showLoginOf prints a login in a list.
func showLoginOf(f *cmdutil.Factory, r *LoginReport) {
	state := ""
	if !r.LoggedIn {
		state = " (expired)"
	}
	f.IO.Out.Printf("%s%s", term.CleanLine(r.Server), state)
	line := func(name, value string) { f.IO.Out.Field(8, "  "+name, value) }
	line("issuer", r.Issuer)
	line("client", r.ClientID)
	line("scopes", strings.Join(r.Scopes, " "))
	line("token", r.token(time.Now()))
}

// A serverStore is a store in which every server uses the login of a key. The key of a server whose
// URL contains a query, or is long, contains only a digest, from which oauthclient cannot form it
// again.
type serverStore struct {
	oauthclient.Store
	key string
}

// Load implements oauthclient.Store.
func (s *serverStore) Load(ctx context.Context, key string) ([]byte, error) {
	if strings.HasPrefix(key, serverPrefix) {
		key = s.key
	}
	return s.Store.Load(ctx, key)
}

// storedLogin returns the login that a key of the store is about, nil if its tokens are gone.
func storedLogin(ctx context.Context, store oauthclient.Store, key string) (*LoginReport, error) {
	address, _, hasQuery := strings.Cut(strings.TrimPrefix(key, serverPrefix), "?")
	u, err := url.Parse(address)
	endpoint, shown := address, address
	switch {
	case err != nil || u.Host == "":
		endpoint, shown = "https://server.invalid/", "a server with a long URL"
	case u.Scheme == "https" && u.Port() == "443", u.Scheme == "http" && u.Port() == "80":
		u.Host = strings.TrimSuffix(u.Host, ":"+u.Port())
		shown = u.String()
	}
	if hasQuery {
		shown += "?…" // only its digest is known
	}
	now, err := oauthclient.NewTransport(endpoint, &oauthclient.TransportOptions{Store: &serverStore{store, key}}).
		Status(ctx)
	if err != nil || now == nil {
		return nil, err
	}
	return &LoginReport{
		Server: shown, Issuer: now.Issuer, ClientID: now.ClientID, Scopes: now.Scopes, Expires: now.Expires,
		Renewable: now.Renewable,
		LoggedIn:  now.Renewable || now.Expires.IsZero() || now.Expires.After(time.Now()),
	}, nil
}

// A LoginReport is the output of `patchbay auth status --json`.
type LoginReport struct {
	Server    string    `json:"server"`
	LoggedIn  bool      `json:"loggedIn"`
	Issuer    string    `json:"issuer,omitzero"`
	ClientID  string    `json:"clientId,omitzero"`
	Scopes    []string  `json:"scopes,omitzero"`
	Expires   time.Time `json:"expires,omitzero"`
	Renewable bool      `json:"renewable"` // without the user
	Storage   *Storage  `json:"storage,omitzero"`
	// Environment reports that client credentials from the environment are used.
	Environment bool `json:"environment,omitzero"`
}

// Storage is the location of the tokens.
type Storage vault.Description

func status(ctx context.Context, f *cmdutil.Factory, t *target.Target) error {
	if err := f.Login.Authorize(ctx, t); err != nil {
		return err
	}
	now, err := t.Auth.Status(ctx)
	if err != nil {
		return err
	}
	r := &LoginReport{Server: t.URL}
	if login.IsMachineClient() {
		r.Environment, r.LoggedIn, r.Renewable = true, true, true
		r.Issuer, r.ClientID = os.Getenv(login.EnvIssuer), os.Getenv(login.EnvClientID)
	} else {
		v, err := f.Vault.Open()
		if err != nil {
			return err
		}
		d, err := v.Describe()
		if err != nil {
			return err
		}
		r.Storage = (*Storage)(&d)
	}
	if now != nil {
		r.Issuer, r.ClientID, r.Scopes = now.Issuer, now.ClientID, now.Scopes
		r.Renewable = now.Renewable || r.Environment
		r.LoggedIn = r.Renewable || now.Expires.IsZero() || now.Expires.After(time.Now())
		r.Expires = now.Expires
	}
	showLogin(f, r)
	if !r.LoggedIn {
		return &exit.Error{Code: exit.Auth, Err: exit.ErrShown}
	}
	return nil
}

func showLogin(f *cmdutil.Factory, r *LoginReport) {
	if f.Flags.JSON {
		f.IO.Out.Value(r)
		return
	}
	line := func(name, value string) { f.IO.Out.Field(11, name, value) }
	line("server", r.Server)
	switch {
	case r.Environment:
		line("logged in", "yes, as client "+r.ClientID+" (from the environment)")
	case r.LoggedIn:
		line("logged in", "yes")
	default:
		line("logged in", "no; run patchbay auth login "+term.ShellWord(f.Client.Current.Load().Name))
	}
	line("issuer", r.Issuer)
	if !r.Environment {
		line("client", r.ClientID)
	}
	line("scopes", strings.Join(r.Scopes, " "))
	line("token", r.token(time.Now()))
	line("storage", r.Storage.String())
}

// token returns the expiry of the token in words.
func (r *LoginReport) token(now time.Time) string {
	var notes []string
	switch {
	case r.Expires.After(now):
		notes = append(notes, "expires in "+r.Expires.Sub(now).Round(time.Second).String())
	case !r.Expires.IsZero():
		notes = append(notes, "expired")
	case r.Environment:
		return "requested by each command"
	case r.Issuer != "":
		notes = append(notes, "unknown expiry")
	}
	if r.Renewable {
		notes = append(notes, "refreshed when needed")
	}
	return strings.Join(notes, ", ")
}

// String returns where the vault stores logins, for people.
func (s *Storage) String() string {
	if s == nil {
		return "none (client credentials from the environment)"
	}
	switch s.Key {
	case vault.InKeyring:
		return s.Dir + ", encrypted with a key in the system keyring"
	case vault.InFile:
		return s.Dir + ", encrypted with a key in the same directory (no keyring found)"
	case vault.InPassphrase:
		return s.Dir + ", encrypted with a passphrase"
	}
	return s.Dir + ", empty"
}
