package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/vault"
)

// Keys of the vault.
const (
	vaultGatewayKey   = "gateway key"       // of the local user
	vaultGatewayState = "gateway state key" // encrypts what clients carry for the gateway
)

const (
	// stateKeySize is the size of the key that encrypts states, in bytes.
	stateKeySize = 32
	// stateKeyTimeout bounds the wait for a keyring that does not answer: clients wait for the gateway.
	stateKeyTimeout = 2 * time.Second
)

// gatewayKey returns the key of the local user. The first call creates it.
func gatewayKey(ctx context.Context, f *factory) (string, error) {
	v, err := f.Vault.openVault()
	var key []byte
	if err == nil {
		key, err = stored(ctx, v, vaultGatewayKey, func() []byte { return []byte(gateway.NewKey()) })
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
	key, err := stored(ctx, v, vaultGatewayState, func() []byte {
		b := make([]byte, stateKeySize)
		_, _ = rand.Read(b) // never fails
		return b
	})
	if err != nil || len(key) != stateKeySize {
		return nil, err
	}
	return [][]byte{key}, nil
}

// stored returns a value of the vault, and creates it if there is none.
func stored(ctx context.Context, v *vault.Vault, key string, create func() []byte) (value []byte, err error) {
	if value, err = v.Load(ctx, key); err != nil || value != nil {
		return value, err
	}
	err = v.Update(ctx, key, func(old []byte) ([]byte, error) {
		if value = old; value == nil { // no other process was faster
			value = create()
		}
		if len(value) == 0 {
			return nil, errors.New("empty value")
		}
		return value, nil
	})
	return value, err
}

// A gatewayReport is where a gateway serves, in JSON.
type gatewayReport struct {
	URL     string       `json:"url"`
	Ops     string       `json:"ops,omitempty"` // without a path
	Servers []string     `json:"servers"`
	Key     *keyLocation `json:"key,omitzero"` // absent without authorization
}

// A keyLocation is where the key of the gateway is stored.
type keyLocation struct {
	Name string `json:"name"`
	storage
}

// announceGateway prints the URL and the configuration of clients. The key is printed on a terminal
// only: elsewhere the output may be a log that others read.
func announceGateway(f *factory, g *gatewayRun, base, key string) {
	address := base + endpoint
	if g.profile != "" {
		address += "/p/" + url.PathEscape(g.profile)
	}
	where := keyStorage(f)
	if f.Flags.json {
		report := gatewayReport{URL: address, Ops: g.observed.url(), Servers: g.servers()}
		if key != "" {
			report.Key = &keyLocation{vaultGatewayKey, where}
		}
		f.IO.Out.value(report)
		return
	}
	f.IO.Out.printf("The gateway is running at %s\nServers: %s", address, shownNames(g.servers()))
	f.Observe.announceOps(g.observed)
	if key != "" && !f.IO.Out.terminal {
		f.IO.Out.printf("Clients need a key, in the header Authorization: Bearer KEY. It is stored in\n%s.\n"+
			"Create one for your clients, with their configuration: patchbay gateway keys new me --all-servers",
			cleanLine(where.String()))
		return
	}
	overHTTP := configEntry{Type: "http", URL: address}
	if key != "" {
		overHTTP.Headers = map[string]string{"Authorization": "Bearer " + key}
	}
	command, args := stdioCommand(f, g)
	f.IO.Out.printf(`
Client configuration over HTTP (Claude Code, Cursor and most others):
%s

VS Code (.vscode/mcp.json):
%s

Clients that start a command, such as Claude Desktop (needs no running gateway):
%s

Stop with Ctrl-C.`, clientConfig("mcpServers", "patchbay", overHTTP), clientConfig("servers", "patchbay", overHTTP),
		clientConfig("mcpServers", "patchbay", configEntry{Command: command, Args: args}))
}

// authority returns the host and port of an address for clients on this machine.
func authority(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return addr.String()
	}
	_, port, _ := net.SplitHostPort(addr.String())
	return net.JoinHostPort("127.0.0.1", port)
}

// keyStorage returns the location of the vault.
func keyStorage(f *factory) storage {
	d, err := f.Vault.opened.Describe()
	if err != nil {
		return storage{Dir: d.Dir}
	}
	return storage(d)
}
