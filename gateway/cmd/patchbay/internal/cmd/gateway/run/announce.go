package run

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/auth"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/vault"
)

// Keys of the vault.
const (
	vaultGatewayKey   = "gateway key"       // of the local user
	vaultGatewayState = "gateway state key" // encrypts the state that clients carry for the gateway
)

const (
	// stateKeySize is the size of the key that encrypts states, in bytes.
	stateKeySize = 32
	// stateKeyTimeout bounds the wait for a keyring that does not answer: clients wait for the
	// gateway.
	stateKeyTimeout = 2 * time.Second
)

// GatewayKey returns the key of the local user. The first call creates it.
func GatewayKey(ctx context.Context, f *cmdutil.Factory) (string, error) {
	v, err := f.Vault.Open()
	var key []byte
	if err == nil {
		key, err = hosting.Stored(ctx, v, vaultGatewayKey, func() []byte { return []byte(gateway.NewKey()) })
	}
	if err != nil {
		return "", fmt.Errorf("load the key of the gateway: %w", err)
	}
	return string(key), nil
}

// stateKey returns the keys for host.Options, so that states stay valid when the gateway restarts.
func stateKey(ctx context.Context, v *vault.Vault) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, stateKeyTimeout)
	defer cancel()
	key, err := hosting.Stored(ctx, v, vaultGatewayState, func() []byte {
		b := make([]byte, stateKeySize)
		_, _ = rand.Read(b) // never fails
		return b
	})
	if err != nil || len(key) != stateKeySize {
		return nil, err
	}
	return [][]byte{key}, nil
}

// A GatewayReport is where a gateway serves, in JSON.
type GatewayReport struct {
	URL     string       `json:"url"`
	Ops     string       `json:"ops,omitempty"`     // without a path
	Console string       `json:"console,omitempty"` // without the token of a login
	Servers []string     `json:"servers"`
	Key     *keyLocation `json:"key,omitzero"` // absent without authorization
}

// A keyLocation is where the key of the gateway is stored.
type keyLocation struct {
	Name string `json:"name"`
	auth.Storage
}

// announceGateway prints the URL and the configuration of clients. The key is printed on a terminal
// only: elsewhere the output may be a log that others read.
func announceGateway(f *cmdutil.Factory, g *Run, base, key string) {
	address := base + connect.Endpoint
	if g.Profile != "" {
		address += "/p/" + url.PathEscape(g.Profile)
	}
	where := keyStorage(f)
	if f.Flags.JSON {
		report := GatewayReport{URL: address, Ops: g.observed.URL(), Servers: g.servers()}
		if key != "" {
			report.Key = &keyLocation{vaultGatewayKey, where}
		}
		f.IO.Out.Value(report)
		return
	}
	f.IO.Out.Printf("The gateway is running at %s\nServers: %s", address, hosting.ShownNames(g.servers()))
	f.Observe.AnnounceOps(g.observed)
	if key != "" && !f.IO.Out.Terminal {
		f.IO.Out.Printf("Clients need a key, in the header Authorization: Bearer KEY. It is stored in\n%s.\n"+
			"Create one for your clients, with their configuration: patchbay gateway keys new me --all-servers%s",
			term.CleanLine(where.String()), flagsOf(f))
		return
	}
	overHTTP := cmdutil.ConfigEntry{Type: "http", URL: address}
	if key != "" {
		overHTTP.Headers = map[string]string{"Authorization": "Bearer " + key}
	}
	command, args := StdioCommand(f, g)
	f.IO.Out.Printf(`
Client configuration over HTTP (Claude Code, Cursor and most others):
%s

VS Code (.vscode/mcp.json):
%s

Clients that start a command, such as Claude Desktop (needs no running gateway):
%s

Stop with Ctrl-C.`, cmdutil.ClientConfig("mcpServers", "patchbay", overHTTP),
		cmdutil.ClientConfig("servers", "patchbay", overHTTP),
		cmdutil.ClientConfig("mcpServers", "patchbay", cmdutil.ConfigEntry{Command: command, Args: args}))
}

// keyStorage returns the location of the vault.
func keyStorage(f *cmdutil.Factory) auth.Storage {
	d, err := f.Vault.Opened.Describe()
	if err != nil {
		return auth.Storage{Dir: d.Dir}
	}
	return auth.Storage(d)
}
