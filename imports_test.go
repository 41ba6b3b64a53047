package patchbay_test

// An importRule names the packages of this project that a package may import, and the reason.
type importRule struct {
	pkg   string // a path within the project
	allow []string
	why   string
}

const (
	whyExample   = "examples are programs that users write"
	whyExtension = "extensions are written on the public API"
	whyStore     = "a store sees what other implementers see"
)

var importRules = []importRule{
	{"internal/jsonscan", nil, "the JSON scanner is the lowest package"},
	{"internal/readbuf", nil, "a read buffer contains bytes, not messages"},
	{"internal/seal", nil, "a key ring does not depend on what it seals"},
	{"internal/netx", nil, "checks of hosts and URLs do not link package net"},
	{"internal/singleflight", nil, "shared calls do not depend on what is called"},
	{"internal/uritemplate", nil, "URI templates are RFC 6570, not MCP"},
	{"internal/sse", nil, "event streams do not depend on MCP"},
	{"internal/browser", []string{"internal/netx"}, "opening a page does not depend on OAuth"},
	{"jsonrpc", []string{"internal/jsonscan"}, "JSON-RPC does not depend on MCP"},
	{"internal/wire", []string{"jsonrpc", "internal/jsonscan"}, "revisions are data"},
	{"internal/peer", []string{"jsonrpc", "internal/jsonscan", "internal/wire"}, "correlation does not depend on methods"},
	{"internal/schema", []string{"internal/jsonscan", "internal/netx"}, "JSON Schema does not depend on MCP"},
	{"internal/readerpool", nil, "the pool does not depend on what is read"},
	{"internal/linestream", []string{"jsonrpc", "internal/peer", "internal/readbuf"}, "a line is one JSON-RPC message"},
	{"internal/childproc", []string{"jsonrpc", "internal/linestream", "internal/peer"},
		"a child process has pipes and an exit status, and does not depend on MCP"},
	{"internal/legacy", []string{"jsonrpc", "internal/wire", "internal/peer", "internal/jsonscan"},
		"the translator works on JSON-RPC messages: it must not import mcp"},
	{"internal/mcpint", []string{"jsonrpc", "internal/wire"}, "mcp imports it"},
	{"mcp", []string{"jsonrpc", "internal/mcpint", "internal/childproc", "internal/linestream", "internal/readerpool",
		"internal/wire", "internal/browser", "internal/peer", "internal/legacy", "internal/schema", "internal/seal",
		"internal/uritemplate", "internal/netx", "internal/jsonscan"},
		"a stdio server must not link HTTP or OAuth"},
	{"mcphttp", []string{"mcp", "jsonrpc", "internal/mcpint", "internal/wire", "internal/legacy", "internal/netx",
		"internal/readbuf", "internal/sse", "internal/jsonscan"},
		"a transport does not depend on authorization"},
	{"mcptest", []string{"mcp", "mcphttp", "jsonrpc", "internal/sse"}, "tests see what users see"},
	{"internal/oauthwire", []string{"internal/jsonscan"}, "names and syntax of OAuth are data"},
	{"internal/oauthfetch", []string{"internal/netx", "internal/jsonscan"},
		"fetching is guarded in one place, without OAuth's flows"},
	{"internal/oauthtest", []string{"internal/netx", "internal/oauthfetch"}, "a network for tests"},
	{"internal/jwskey", nil, "keys and their algorithms serve both sides"},
	{"internal/dpop", []string{"internal/jwskey", "internal/netx", "internal/oauthwire", "internal/jsonscan"},
		"proofs are made and verified for both sides"},
	{"oauth", []string{"mcp", "internal/netx", "internal/singleflight", "internal/oauthwire", "internal/oauthfetch",
		"internal/jwskey", "internal/dpop", "internal/jsonscan"},
		"authorization of a resource is middleware: it does not depend on a transport or a client"},
	{"oauth/oauthclient", []string{"oauth", "mcp", "internal/browser", "internal/netx", "internal/oauthwire",
		"internal/oauthfetch", "internal/jwskey", "internal/dpop", "internal/jsonscan"},
		"an OAuth client is an http.RoundTripper: it does not depend on a transport of MCP"},
	{"oauth/authserver", []string{"oauth", "mcp", "internal/dpop", "internal/netx", "internal/oauthfetch",
		"internal/oauthwire", "internal/seal", "internal/singleflight"},
		"an authorization server does not depend on the MCP server"},
	{"oauth/authserver/storetest", []string{"oauth/authserver"}, whyStore},
	{"internal/private", nil, "access to files is checked in one place"},
	{"internal/jsonc", []string{"internal/jsonscan"}, "a syntax is data"},
	{"host", []string{"internal/jsonc", "internal/jsonscan", "internal/private"}, "a configuration is data: its reader decides what to connect"},
	{"mcp/middleware", []string{"mcp"}, "middleware is written on the public API"},
	{"ext/tasks", []string{"mcp", "jsonrpc"}, whyExtension},
	{"ext/tasks/storetest", []string{"ext/tasks"}, whyStore},
	{"ext/apps", []string{"mcp", "jsonrpc"}, whyExtension},
	{"ext/skills", []string{"mcp"}, whyExtension},
	{"ext/icons", []string{"mcp", "oauth", "internal/oauthfetch", "internal/netx"},
		"icons are fetched by the rules for untrusted URLs, which have one definition"},
	{"stores/bolt", []string{"ext/tasks", "oauth/authserver"}, whyStore},
	{"cmd/patchbay", []string{"cmd/patchbay/internal/cli"}, "package main parses flags only"},
	{"cmd/patchbay/internal/vault", []string{"oauth", "oauth/oauthclient", "internal/seal", "internal/private"},
		"a vault stores the tokens of clients"},
	{"cmd/patchbay/internal/demo", []string{"mcp", "ext/tasks", "ext/apps", "ext/skills"},
		"the demo is a user of the SDK"},
	{"cmd/patchbay/internal/configs", []string{"host", "internal/jsonc"}, "formats of applications are data"},
	{"cmd/patchbay/internal/cli", []string{"mcp", "mcphttp", "oauth", "oauth/oauthclient", "oauth/authserver",
		"ext/tasks", "stores/bolt", "ext/skills", "host", "jsonrpc", "internal/browser", "cmd/patchbay/internal/demo",
		"cmd/patchbay/internal/vault", "internal/netx", "internal/wire", "internal/schema", "internal/jsonscan",
		"internal/peer", "internal/childproc", "internal/uritemplate", "internal/mcpint",
		"cmd/patchbay/internal/configs"},
		"the command is a user of the SDK, and the only reader of command lines"},
	{"examples/app", []string{"mcp", "ext/apps"}, whyExample},
	{"examples/apphost", []string{"mcp", "ext/apps"}, whyExample},
	{"examples/authserver", []string{"mcp", "mcphttp", "oauth", "oauth/authserver", "stores/bolt"}, whyExample},
	{"examples/calc", []string{"mcp"}, whyExample},
	{"examples/calcclient", []string{"mcp"}, whyExample},
	{"examples/calchttp", []string{"mcp", "mcphttp"}, whyExample},
	{"examples/deploy", []string{"mcp"}, whyExample},
	{"examples/deployclient", []string{"mcp"}, whyExample},
	{"examples/guides", nil, whyExample}, // its tests import what they show
	{"examples/notes", []string{"mcp", "mcphttp", "oauth"}, whyExample},
	{"examples/login", []string{"mcp", "mcphttp", "oauth/oauthclient"}, whyExample},
	{"examples/press", []string{"mcp", "mcphttp", "ext/tasks", "stores/bolt"}, whyExample},
	{"examples/pressclient", []string{"mcp", "mcphttp", "ext/tasks"}, whyExample},
	{"examples/team", []string{"mcp", "mcphttp", "oauth"}, whyExample},
	{"examples/production", []string{"mcp", "mcphttp"}, whyExample},
	{"examples/protected", []string{"mcp", "mcphttp", "oauth"}, whyExample},
}

// allowedOutside names the modules that a package may import besides ours. Each has its decision in
// docs/adr. Those under the empty name are for every package.
var allowedOutside = map[string][]string{
	"":                  {"github.com/go-json-experiment/json"},
	"mcptest":           {"github.com/santhosh-tekuri/jsonschema/v6"},
	"oauth":             {"github.com/go-jose/go-jose/v4"},
	"oauth/oauthclient": {"github.com/go-jose/go-jose/v4"},
	"internal/jwskey":   {"github.com/go-jose/go-jose/v4"},
	"internal/dpop":     {"github.com/go-jose/go-jose/v4"},
	"oauth/authserver": {"github.com/go-jose/go-jose/v4", "github.com/coreos/go-oidc/v3",
		"golang.org/x/oauth2", "golang.org/x/time/rate"},
	"stores/bolt":                   {"go.etcd.io/bbolt"},
	"mcp/middleware":                {"golang.org/x/time"},
	"ext/skills":                    {"go.yaml.in/yaml/v4"},
	"cmd/patchbay/internal/vault":   {"github.com/zalando/go-keyring", "golang.org/x/sys"},
	"cmd/patchbay/internal/configs": {"github.com/BurntSushi/toml", "go.yaml.in/yaml/v4"},
	"cmd/patchbay/internal/cli":     {"github.com/spf13/cobra", "golang.org/x/term", "github.com/ergochat/readline"},
}
