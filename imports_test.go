package patchbay_test

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// An importRule forbids imports between two layers of the project. A name stands for the package
// and everything below it; packages in except are exempt.
type importRule struct {
	from, deny, except []string
	why                string
}

const webConsole = "gateway/cmd/patchbay/internal/console"

var importRules = []importRule{
	{[]string{"internal"}, []string{"mcp", "mcphttp", "oauth", "ext", "host", "gateway", "stores", "otelmcp", "mcptest"},
		nil, "internal packages are the lowest layer"},
	{[]string{"internal/jsonscan", "visible", "internal/readbuf", "internal/seal", "internal/netx", "internal/lru",
		"internal/singleflight", "internal/sse", "uritemplate", "internal/readerpool"}, []string{"internal", "jsonrpc"},
		nil, "tools for bytes and maps do not depend on JSON-RPC"},
	{[]string{"jsonrpc"}, []string{"internal", "mcp", "mcphttp"}, []string{"internal/jsonscan"},
		"JSON-RPC does not depend on MCP"},
	{[]string{"replica"}, []string{"internal", "jsonrpc", "mcp", "mcphttp", "oauth", "ext", "host", "gateway"}, nil,
		"a store of replicas does not depend on the protocol"},
	{[]string{"mcp"}, []string{"mcphttp", "oauth", "ext", "host", "gateway"}, nil,
		"a stdio server must not link HTTP or OAuth"},
	{[]string{"mcphttp"}, []string{"oauth", "ext", "host", "gateway"}, nil, "a transport does not depend on authorization"},
	{[]string{"oauth"}, []string{"mcphttp", "ext", "host", "gateway", "stores"}, nil,
		"authorization is middleware: it does not depend on a transport"},
	{[]string{"ext"}, []string{"internal", "mcphttp", "host", "gateway"},
		[]string{"internal/oauthfetch", "internal/netx"}, "extensions are written on the public API"},
	{[]string{"host/config", "host/hosterr", "host/policy", "host/event", "host/state", "host/status", "host/approval", "host/operator",
		"host/pin"},
		[]string{"host/internal", "gateway"}, []string{"host/internal/pinrecord", "host/internal/catalogue"},
		"the vocabulary of a host is below its implementation; stored records and catalogues are below both"},
	{[]string{"host/internal/catalogue", "host/internal/proclimit"}, []string{"host", "mcphttp", "oauth"},
		[]string{"host/internal/catalogue", "host/internal/proclimit"}, "merged lists and process limits know no host"},
	{[]string{"host/internal/sandbox"}, []string{"host", "mcp", "mcphttp", "oauth"}, []string{"host/config"},
		"a sandbox knows settings and commands"},
	{[]string{"host/internal/pinrecord"}, []string{"host", "mcp"}, []string{"host/state", "host/internal/catalogue"},
		"a stored record does not depend on who compares it"},
	{[]string{"host/internal/connection"}, []string{"host", "oauth"},
		[]string{"host/internal/proclimit", "host/internal/sandbox", "host/config", "host/hosterr", "host/status"},
		"a connection knows no callers, policies and pins"},
	{[]string{"host/internal/listing"}, []string{"host", "oauth"},
		[]string{"host/internal/connection", "host/internal/catalogue", "host/hosterr"},
		"the lists of a server know no callers, views and pins"},
	{[]string{"host/internal/server"}, []string{"host", "mcp", "mcphttp", "oauth"},
		[]string{"host/config", "host/internal/catalogue"}, "the description of a server does not depend on its connections"},
	{[]string{"host/internal/approve"}, []string{"host", "mcphttp", "oauth"},
		[]string{"host/internal/approve", "host/internal/call", "host/internal/round", "host/internal/server",
			"host/approval", "host/event", "host/hosterr", "host/policy", "host/state"},
		"approvals know no views, connections and policies"},
	{[]string{"host/internal/call", "host/internal/limits", "host/internal/login", "host/internal/pins", "host/internal/task",
		"host/internal/authorize", "host/internal/observe", "host/internal/result"},
		[]string{"host/internal/upstream", "host/internal/routes"}, nil, "a stage knows a call, not how servers are reached"},
	{[]string{"host/internal/routes", "host/internal/skills"},
		[]string{"host/internal/upstream", "host/internal/limits", "host/internal/observe", "host/internal/authorize",
			"host/internal/result", "mcphttp", "oauth"}, nil,
		"lists and names of a caller know no connections, limits and policies"},
	{[]string{"host"}, []string{"gateway", "stores", "otelmcp", "oauth/authserver"}, nil,
		"a host does not depend on who serves it"},
	{[]string{"stores", "otelmcp", "examples"}, []string{"gateway"}, nil, "a store or program does not need the gateway"},
	{[]string{"gateway/audit", "gateway/celpolicy", "gateway/gatewayconfig"}, []string{"gateway/cmd", "mcphttp"}, nil,
		"records and rules do not depend on how a host is served"},
	{[]string{webConsole + "/page", webConsole + "/diff"}, []string{webConsole},
		[]string{webConsole + "/page", webConsole + "/diff"}, "the framework of the web console knows no screen"},
	{[]string{"examples", "gateway", "otelmcp", "stores"}, []string{"internal"}, nil,
		"internal packages of the root are not a contract between modules"},
}

// isBelow reports whether a package is one of the names or below one.
func isBelow(pkg string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return pkg == name || strings.HasPrefix(pkg, name+"/")
	})
}

func TestImportRules(t *testing.T) {
	var patterns []string
	for _, m := range productModules {
		patterns = append(patterns, "./"+path.Join(m, "..."))
	}
	for _, p := range list(t, patterns...) {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		for _, imported := range p.Imports {
			own, isOwn := strings.CutPrefix(imported, module+"/")
			if !isOwn {
				checkOutside(t, name, imported)
				continue
			}
			for _, r := range importRules {
				if isBelow(name, r.from) && isBelow(own, r.deny) && !isBelow(own, r.except) && !isBelow(name, r.except) {
					t.Errorf("%s imports %s: %s", name, own, r.why)
				}
			}
		}
	}
}

func checkOutside(t *testing.T, name, imported string) {
	t.Helper()
	allowed := slices.Clone(allowedOutside[""])
	for dir, modules := range allowedOutside {
		if dir != "" && isBelow(name, []string{dir}) {
			allowed = append(allowed, modules...)
		}
	}
	if first, _, _ := strings.Cut(imported, "/"); strings.Contains(first, ".") && !isBelow(imported, allowed) {
		t.Errorf("%s imports %s: a new dependency needs an ADR and a place in allowedOutside", name, imported)
	}
}

// allowedOutside names the modules that a package, and packages below it, may import besides ours.
// An ADR explains each. Every package may import the modules of the empty name.
var allowedOutside = map[string][]string{
	"":                  {"github.com/go-json-experiment/json"},
	"mcptest":           {"github.com/santhosh-tekuri/jsonschema/v6"},
	"oauth":             {"github.com/go-jose/go-jose/v4"},
	"oauth/oauthclient": {"github.com/go-jose/go-jose/v4"},
	"internal/jwskey":   {"github.com/go-jose/go-jose/v4"},
	"internal/dpop":     {"github.com/go-jose/go-jose/v4"},
	"oauth/oidcclient":  {"github.com/coreos/go-oidc/v3", "golang.org/x/oauth2"},
	"oauth/authserver": {"github.com/go-jose/go-jose/v4", "github.com/coreos/go-oidc/v3",
		"golang.org/x/oauth2"},
	"stores/bolt":                           {"go.etcd.io/bbolt"},
	"stores/postgres":                       {"github.com/jackc/pgx/v5"},
	"stores/redis":                          {"github.com/redis/rueidis"},
	"stores/shared":                         {"github.com/redis/rueidis"},
	"gateway/celpolicy":                     {"cel.dev/cel-go"},
	"otelmcp":                               {"go.opentelemetry.io/otel"},
	"internal/limit":                        {"golang.org/x/time"},
	"ext/skills":                            {"go.yaml.in/yaml/v4"},
	"gateway/cmd/patchbay/internal/vault":   {"github.com/zalando/go-keyring", "golang.org/x/sys"},
	"gateway/cmd/patchbay/internal/configs": {"github.com/BurntSushi/toml", "go.yaml.in/yaml/v4"},
	"gateway/cmd/patchbay/internal/telemetry": {"go.opentelemetry.io/otel", "github.com/prometheus/client_golang",
		"github.com/go-logr/logr"},
	"gateway/cmd/patchbay/internal/telemetry/otlp": {"go.opentelemetry.io/proto/otlp",
		"google.golang.org/protobuf"},
	"gateway/cmd/patchbay/internal/telemetry/otlptest": {"go.opentelemetry.io/proto/otlp", "google.golang.org/protobuf"},
	"gateway/cmd/patchbay/internal/cmd":                {"github.com/spf13/cobra"},
	"gateway/cmd/patchbay/internal/cmd/shell":          {"github.com/spf13/cobra", "github.com/ergochat/readline", "golang.org/x/term"},
	"gateway/cmd/patchbay/internal/cmdutil":            {"github.com/spf13/cobra"},
	"gateway/cmd/patchbay/internal/console":            {"github.com/a-h/templ"},
	"gateway/cmd/patchbay/internal/configedit":         {"github.com/spf13/cobra"},
	"gateway/cmd/patchbay/internal/gatewayclient":      {"golang.org/x/sys"},
	"gateway/cmd/patchbay/internal/https":              {"golang.org/x/crypto"},
	"gateway/cmd/patchbay/internal/target":             {"golang.org/x/term"},
	"gateway/cmd/patchbay/internal/term":               {"golang.org/x/term"},
}
