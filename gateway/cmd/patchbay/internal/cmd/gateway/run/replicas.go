package run

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/replicas"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// joinReplicas announces the process to the processes that share its store, until the end of ctx. The
// returned function waits for the end.
func joinReplicas(ctx context.Context, f *cmdutil.Factory, g *Run, addr net.Addr) (wait func()) {
	bus := g.Config.Stores.Bus()
	if bus == nil {
		return func() {}
	}
	machine, _ := os.Hostname() // else the name is the address alone
	now := time.Now()
	self := replicas.Process{ID: rand.Text(), Name: machine + " " + addr.String(), Started: now, Since: now,
		Configuration: g.configurationDigest(g.Config.File)}
	g.replicas, wait = replicas.Join(ctx, bus, self, f.IO.Logger())
	return wait
}

// otherReplicas returns the processes that share the store, or nil without a shared store.
func (g *Run) otherReplicas() *gateway.Replicas {
	if g.replicas == nil {
		return nil
	}
	r := g.replicas.Replicas()
	return &r
}

// countReplicas returns the number of processes with the same configuration, and with another.
func (g *Run) countReplicas() (same, other int) {
	if r := g.otherReplicas(); r != nil {
		same, other = r.Processes-len(r.Other), len(r.Other)
	}
	return same, other
}

// configurationDigest returns a digest by which processes find out whether they use the same configuration.
// It contains the names of variables and of secrets, but no values: not even a guess can be checked with it.
// Addresses to listen at differ between processes of a machine.
func (g *Run) configurationDigest(file *config.File) string {
	var entries []map[string]any
	for _, name := range file.Names() { // their order decides between equal names of tools
		s, err := file.Server(name)
		if err != nil {
			entries = append(entries, map[string]any{"name": name, "invalid": true})
			continue
		}
		entries = append(entries, map[string]any{"name": name, "type": s.Type, "command": s.Command, "args": s.Args,
			"env": s.Env, "envFile": s.EnvFile, "cwd": s.Dir, "url": s.URL, "headers": s.Header,
			"headersHelper": s.HeaderCommand, "allowedTools": s.AllowedTools, "excludedTools": s.ExcludedTools})
	}
	settings, err := gatewayconfig.Read(file)
	if err == nil {
		settings.Listen, settings.Ops, settings.Cluster = "", "", nil
	}
	text, err := json.Marshal(map[string]any{"servers": entries, "settings": settings, "profile": g.Profile,
		"noAuth": g.NoAuth, "args": g.targetWords})
	if err != nil {
		return "invalid"
	}
	const digits = 32
	h := hmac.New(sha256.New, append([]byte("configuration "), g.Config.Stores.StateKeys()[0]...))
	h.Write([]byte(withoutSecrets(text)))
	return hex.EncodeToString(h.Sum(nil))[:digits]
}

// variableName matches the beginning of a variable, up to its default.
var variableName = regexp.MustCompile(`\$\{[^}]*?(:-|\})`)

// withoutSecrets returns a JSON text in which only the names of variables are left of a value that may be secret.
func withoutSecrets(text []byte) string {
	parts, err := (&configMask{}).Parts(text)
	if err != nil {
		return ""
	}
	var b strings.Builder
	at := 0
	for _, p := range parts {
		value := string(text[p.start:p.end])
		name := p.place[strings.LastIndexByte(p.place, '/')+1:]
		public := !target.SecretName.MatchString(name) && target.HideKeys(value) == value
		if public && strings.Contains(p.place, "/env/") {
			continue
		}
		b.Write(text[at:p.start])
		b.WriteString(strings.Join(variableName.FindAllString(value, -1), ""))
		at = p.end
	}
	b.Write(text[at:])
	return b.String()
}
